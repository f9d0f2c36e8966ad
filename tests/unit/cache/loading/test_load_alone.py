"""A caller that loads for itself, because the load that it followed can't be shared."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django_redis_locks.cache import get_or_load
from django_redis_locks.cache.loading.coordinator import coordinator_of
from django_redis_locks.cache.loading.singleflight import LOAD_ALONE, InflightLoad
from tests.contract.matrix import PATIENCE, eventually


def test_load_timeout_bounds_a_load_that_is_not_shared(settings: Any) -> None:
    """Such as after a load that began in a transaction while the store was down."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "alone"}}
    coordinator, gate = coordinator_of(), threading.Event()
    key = coordinator.unchecked_key("k", None)
    inflight = coordinator.single_flight.join(key, InflightLoad())

    def load() -> str:
        assert gate.wait(PATIENCE)
        return "too late"

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(get_or_load, "k", load, ttl=60, load_timeout=0.2, default="default")
        eventually(lambda: inflight.events)
        coordinator.single_flight.finish(key, inflight, LOAD_ALONE)
        try:
            assert following.result(PATIENCE / 2) == "default"
        finally:
            gate.set()

"""The effects of a load on a cache that isn't on Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import cache

from django_redis_locks.cache import get_or_load
from django_redis_locks.cache.loading.coordinator import coordinator_of
from django_redis_locks.cache.loading.effects import Delete, Fetch, FetchMany, Store
from django_redis_locks.cache.results import MISSING

here = threading.local()


def key_of_tenant(key: str, prefix: str, version: int) -> str:
    """A key function that raises in threads without a tenant."""
    return f"{here.tenant}:{key}"


def performer(*, asynchronous: bool) -> Callable[[Any], Any]:
    performer = coordinator_of().performer
    if asynchronous:
        return lambda effect: async_to_sync(performer.ahandlers[type(effect)])(effect)
    return lambda effect: performer.handlers[type(effect)](effect)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_values_are_read_and_written_under_the_key_of_the_caller(settings: Any, *, asynchronous: bool) -> None:
    """[S6] The thread that performs the effect may have no tenant, or another one."""
    locmem = "django.core.cache.backends.locmem.LocMemCache"
    settings.CACHES = {"default": {"BACKEND": locmem, "LOCATION": "effects", "KEY_FUNCTION": key_of_tenant}}
    perform = performer(asynchronous=asynchronous)
    here.tenant = "other"
    cache.set("k", "right")
    del here.tenant
    for _ in range(2):
        perform(Store("k", None, "caller:k", "value", 60))
        assert perform(Fetch("k", None, "caller:k")) == "value"
        assert perform(FetchMany({"k": "caller:k", "l": "caller:l"}, None)) == {"k": "value"}
        perform(Delete("k", None, "caller:k"))
        assert perform(Fetch("k", None, "caller:k")) is MISSING
        here.tenant = "other"
    assert cache.get("k") == "right"


def test_interruption_before_the_first_step_of_a_load_lets_other_callers_load(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """As by a time limit of Celery. Otherwise all later callers of the process would wait for ever."""
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "interrupted"}
    }
    with monkeypatch.context() as patch:
        patch.setattr("django_redis_locks.cache.loading.get.publish_outcome", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            get_or_load("k", lambda: "interrupted")
    assert get_or_load("k", lambda: "value", wait=0, on_timeout="raise") == "value"

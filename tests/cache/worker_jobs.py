"""Functions that the processes of test_processes.py call; see ``tests.chaos.workers``."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from django.core.cache import caches
from django.test import override_settings

from django_redis_locks.cache import get_or_load, invalidate
from tests.cache.backends import REDIS, WRAPPER
from tests.chaos.workers import PATIENCE, Gates
from tests.probes.cache import followers, loads_in_flight, waiters_in_store

loads: Counter[str] = Counter()
"""The number of loader calls in this process, by value."""
gates = Gates()
_mutex = threading.Lock()


def configure(url: str) -> None:
    """Configure a cache on this server, and a StampedeCache that wraps it."""
    entries = {"default": {"BACKEND": REDIS, "LOCATION": url}, "wrapped": {"BACKEND": WRAPPER, "LOCATION": "default"}}
    override_settings(CACHES=entries).enable()
    django.setup()
    caches["default"].get("warm-up")
    invalidate("warm-up")  # loads the script and opens the connection


def open_gate(gate: str) -> None:
    gates[gate].set()


def wait_for_gate(gate: str) -> bool:
    return gates[gate].wait(PATIENCE)


def loader_calls() -> dict[str, int]:
    return dict(loads)


def load(key: str, value: str, gate: str = "", **options: Any) -> tuple[Any, str]:
    """Load; the loader waits for the gate, if given. Return the value and its source."""

    def loader() -> str:
        with _mutex:
            loads[value] += 1
        gates[f"{value} began"].set()
        if gate:
            wait_for_gate(gate)
        return value

    result = get_or_load(key, loader, info=True, **{"ttl": 60, "wait": PATIENCE, **options})
    return result.value, result.source


def concurrent_loads(size: int, key: str, value: str, gate: str) -> list[Any]:
    """Load in concurrent threads. Return their values."""
    barrier = threading.Barrier(size)

    def call(_: int) -> Any:
        barrier.wait(PATIENCE)
        return load(key, value, gate)[0]

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, range(size)))


def put(key: str, value: str, seconds: float) -> None:
    caches["default"].set(key, value, seconds)


def change_cache(how: str, key: str, value: str) -> None:
    """Change the cache while another process loads."""
    if how == "invalidate":
        invalidate(key)
    elif how == "incr_version":
        caches["wrapped"].set(key, value)  # otherwise there is no value to move
        caches["wrapped"].incr_version(key)
    else:
        args = {"set": (key, value), "delete": (key,), "clear": ()}[how]
        getattr(caches["wrapped"], how)(*args)


def waiting() -> int:
    """The number of keys that callers of this process wait for in the store."""
    return waiters_in_store("default")


def following() -> int:
    """The number of callers that wait for loads of this process."""
    return followers("default")


def loads_running() -> int:
    """The number of running loads of this process."""
    return len(loads_in_flight("default"))

"""What the processes of ``test_processes`` can do; see ``tests.chaos.workers``."""

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
"""How often this process's loaders ran, by value."""
gates = Gates()
_mutex = threading.Lock()


def configure(url: str) -> None:
    """A cache of Django's on this server, and what wraps it."""
    entries = {"default": {"BACKEND": REDIS, "LOCATION": url}, "wrapped": {"BACKEND": WRAPPER, "LOCATION": "default"}}
    override_settings(CACHES=entries).enable()
    django.setup()
    caches["default"].get("warm-up")
    invalidate("warm-up")  # its script and its connection are there


def lift(gate: str) -> None:
    gates[gate].set()


def lifted(gate: str) -> bool:
    return gates[gate].wait(PATIENCE)


def loaded() -> dict[str, int]:
    return dict(loads)


def load(key: str, value: str, gate: str = "", **options: Any) -> tuple[Any, str]:
    """One caller; its loader ends when the test lifts the gate. Returns the value and its source."""

    def loader() -> str:
        with _mutex:
            loads[value] += 1
        gates[f"{value} began"].set()
        if gate:
            lifted(gate)
        return value

    result = get_or_load(key, loader, info=True, **{"ttl": 60, "wait": PATIENCE, **options})
    return result.value, result.source


def crowd(size: int, key: str, value: str, gate: str) -> list[Any]:
    """The values of callers at once, in threads."""
    barrier = threading.Barrier(size)

    def call(_: int) -> Any:
        barrier.wait(PATIENCE)
        return load(key, value, gate)[0]

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, range(size)))


def put(key: str, value: str, seconds: float) -> None:
    caches["default"].set(key, value, seconds)


def disturb(how: str, key: str, value: str) -> None:
    """Change the cache while another process loads."""
    if how == "invalidate":
        invalidate(key)
    elif how == "incr_version":
        caches["wrapped"].set(key, value)  # else there is nothing to be moved
        caches["wrapped"].incr_version(key)
    else:
        args = {"set": (key, value), "delete": (key,), "clear": ()}[how]
        getattr(caches["wrapped"], how)(*args)


def waiting() -> int:
    """For how many keys callers of this process wait in the store."""
    return waiters_in_store("default")


def following() -> int:
    """How many callers wait for loads of this process."""
    return followers("default")


def flying() -> int:
    """How many loads of this process are under way."""
    return len(loads_in_flight("default"))

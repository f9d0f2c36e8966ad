"""What a worker of ``test_processes`` does in its process when a test tells it to; see ``tests.chaos.workers``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import django
from django.core.cache import caches
from django.test import override_settings

from django_redis_locks.cache import (
    aget_or_load,
    get_or_load,
    get_or_load_many,
    invalidate,
    load_finished,
)
from tests.cache.backends import REDIS, WRAPPER
from tests.chaos.workers import PATIENCE, Gates
from tests.probes.cache import waiters_in_store

loads: Counter[str] = Counter()
"""How often this process's loaders ran, by value."""
ended: Counter[str] = Counter()
"""Loads that are over, by name."""
served: list[str] = []
"""The sources of values that callers got, or the names of what was raised."""
gates = Gates()
_mutex = threading.Lock()


class Got(NamedTuple):
    """What a caller got, and in how many seconds."""

    value: Any
    source: str
    seconds: float


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


def _note(*, name: str, **about: Any) -> None:
    ended[name] += 1


load_finished.connect(_note)


def _loader(value: str, seconds: float, *, fails: bool = False, gate: str = "") -> Any:
    def load() -> str:
        with _mutex:
            loads[value] += 1
        gates[f"{value} began"].set()
        if gate:
            lifted(gate)
        time.sleep(seconds)  # the load's own time
        if fails:
            raise OSError(value)
        return value

    return load


def load(key: str, value: str, seconds: float = 0.0, *, fails: bool = False, gate: str = "", **options: Any) -> Got:
    """One caller."""
    begin = time.monotonic()
    options = {"ttl": 60, "wait": PATIENCE, **options}
    result = get_or_load(key, _loader(value, seconds, fails=fails, gate=gate), info=True, **options)
    return Got(result.value, result.source, time.monotonic() - begin)


def crowd(size: int, key: str, value: str, seconds: float, **how: Any) -> list[Got | str]:
    """Callers at once; what each of them got, or the name of what was raised."""
    barrier = threading.Barrier(size)
    found: list[Got | str] = []

    def call() -> None:
        barrier.wait(PATIENCE)
        got: Got | str
        try:
            got = load(key, value, seconds, **how)
        except Exception as failure:  # noqa: BLE001 - the test compares
            got = type(failure).__name__
        found.append(got)
        served.append(got if isinstance(got, str) else got.source)

    threads = [threading.Thread(target=call) for _ in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return found


async def acrowd(size: int, key: str, value: str, seconds: float, **options: Any) -> list[Got]:
    async def aload() -> str:
        loads[value] += 1
        await asyncio.sleep(seconds)
        return value

    async def call() -> Got:
        begin = time.monotonic()
        result = await aget_or_load(key, aload, info=True, **{"ttl": 60, "wait": PATIENCE, **options})
        return Got(result.value, result.source, time.monotonic() - begin)

    return list(await asyncio.gather(*(call() for _ in range(size))))


def load_many(keys: list[str], seconds: float) -> tuple[dict[str, str], float]:
    def loader(asked: list[str]) -> dict[str, str]:
        loads.update(asked)
        time.sleep(seconds)
        return {key: f"value of {key}" for key in asked}

    begin = time.monotonic()
    return get_or_load_many(keys, loader, ttl=60, wait=PATIENCE), time.monotonic() - begin


def put(key: str, value: str, seconds: float) -> None:
    caches["default"].set(key, value, seconds)


def disturb(how: str, key: str, value: str) -> None:
    """Change the cache while another process loads."""
    cache = caches["wrapped"]
    if how == "invalidate":
        invalidate(key)
    elif how == "set":
        cache.set(key, value)
    elif how == "delete":
        cache.delete(key)
    elif how == "clear":
        cache.clear()
    elif how == "incr_version":
        cache.set(key, value)  # else there is nothing to be moved
        cache.incr_version(key)
    else:
        raise ValueError(how)


def timed_crowd(size: int, key: str, value: str, seconds: float, **how: Any) -> list[tuple[str, float]]:
    """Of a crowd whose loads fail: what was raised, and how long all of it took."""
    begin = time.monotonic()
    found = crowd(size, key, value, seconds, **how)
    return [(str(each), time.monotonic() - begin) for each in found]


def sources() -> list[str]:
    """What the callers of crowds got that are done."""
    return list(served)


def waiting() -> int:
    """For how many keys callers of this process wait in the store."""
    return waiters_in_store("default")


def flying() -> int:
    """How many loads of this process are on their way."""
    return sum(loads.values()) - sum(ended.values())

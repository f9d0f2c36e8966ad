"""What the processes of ``test_processes`` can do; see ``tests.chaos.workers``."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
from tests.probes.cache import followers, waiters_in_store

loads: Counter[str] = Counter()
"""How often this process's loaders ran, by value."""
ended: Counter[str] = Counter()
"""Loads that are over, by name."""
served: list[str] = []
"""The sources of values that callers got, or the names of what was raised."""
gates = Gates()
_mutex = threading.Lock()


class Got(NamedTuple):
    """What a caller got: a value and its source, or None and the name of what was raised."""

    value: Any
    source: str


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


def _loader(value: str, gate: str, *, fails: bool = False) -> Callable[[], str]:
    def load() -> str:
        with _mutex:
            loads[value] += 1
        gates[f"{value} began"].set()
        if gate:
            lifted(gate)
        if fails:
            raise OSError(value)
        return value

    return load


def load(key: str, value: str, *, fails: bool = False, gate: str = "", **options: Any) -> Got:
    """One caller, whose loader ends when the gate is lifted."""
    options = {"ttl": 60, "wait": PATIENCE, **options}
    result = get_or_load(key, _loader(value, gate, fails=fails), info=True, **options)
    return Got(result.value, result.source)


def crowd(size: int, key: str, value: str, **how: Any) -> list[Got]:
    """Callers at once, in threads."""
    barrier = threading.Barrier(size)

    def call(_: int) -> Got:
        barrier.wait(PATIENCE)
        try:
            got = load(key, value, **how)
        except Exception as failure:  # noqa: BLE001 - the test compares
            got = Got(None, type(failure).__name__)
        served.append(got.source)
        return got

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, range(size)))


async def acrowd(size: int, key: str, value: str, gate: str) -> list[Got]:
    """Callers at once, in tasks."""

    async def call() -> Got:
        load = partial(asyncio.to_thread, _loader(value, gate))
        result = await aget_or_load(key, load, info=True, ttl=60, wait=PATIENCE)
        return Got(result.value, result.source)

    return list(await asyncio.gather(*(call() for _ in range(size))))


def load_many(keys: list[str], gate: str) -> dict[str, str]:
    def loader(asked: list[str]) -> dict[str, str]:
        loads.update(asked)
        lifted(gate)
        return {key: f"value of {key}" for key in asked}

    return get_or_load_many(keys, loader, ttl=60, wait=PATIENCE)


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


def sources() -> list[str]:
    """What the callers of crowds got that are done."""
    return list(served)


def waiting() -> int:
    """For how many keys callers of this process wait in the store."""
    return waiters_in_store("default")


def following() -> int:
    """How many callers wait for loads of this process."""
    return followers("default")


def flying() -> int:
    """How many loads of this process are under way."""
    return sum(loads.values()) - sum(ended.values())

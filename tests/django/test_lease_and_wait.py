"""[F2] The values of a lease and a wait: what each call takes, what it refuses, and what None and -1 mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest

from django_redis_locks import InvalidLockBackend, Lock, current_grant, locks, redis_lock
from tests.django.helpers import held_elsewhere

NO_TIME = [True, False, "5", b"5", [], Decimal(5), object(), nan, inf, -inf, 10**400, -2, -0.5, timedelta(seconds=-1)]
NO_LEASE = [*NO_TIME, -1, 0, 0.0, timedelta(0), 0.009, timedelta(days=4000)]


def extended(value: Any) -> None:
    with locks.lock("order") as grant:
        before = grant.remaining()
        try:
            grant.extend(value)
        finally:
            grant.ensure_held(confirm=True)
            assert before - 5 < grant.remaining() <= before


def aextended(value: Any) -> None:
    async def scenario() -> None:
        async with locks.lock("order") as grant:
            await grant.aextend(value)

    asyncio.run(scenario())


LEASES: dict[str, Callable[[Any], object]] = {
    "lock": lambda value: locks.lock("order", expire=value),
    "lock-of-alias": lambda value: locks["default"].lock("order", expire=value),
    "rlock": lambda value: locks.rlock("order", expire=value),
    "rlock-of-alias": lambda value: locks["default"].rlock("order", expire=value),
    "decorator": lambda value: redis_lock("order", expire=value),
    "extend": extended,
    "aextend": aextended,
}
WAITS: dict[str, Callable[[Any], object]] = {
    "lock": lambda value: locks.lock("order", wait=value),
    "lock-of-alias": lambda value: locks["default"].lock("order", wait=value),
    "rlock": lambda value: locks.rlock("order", wait=value),
    "decorator": lambda value: redis_lock("order", wait=value),
    "acquire": lambda value: locks.lock("order").acquire(timeout=value),
    "aacquire": lambda value: asyncio.run(locks.lock("order").aacquire(timeout=value)),
}


def refuses(call: Callable[[Any], object], values: list[Any], match: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=match):
            pytest.fail(f"{value!r} was taken, and gave {call(value)!r}")


@pytest.mark.parametrize("name", LEASES)
def test_wrong_lease_raises_ValueError(name: str) -> None:
    """[F2] A lease is finite, positive and a number or timedelta, at every call; a refused one changes nothing, and
    `extend` has no default."""
    refuses(LEASES[name], [*NO_LEASE, *([None] if "extend" in name else [])], "expire must be")
    assert not locks.lock("order").locked()


@pytest.mark.parametrize("name", WAITS)
def test_wrong_wait_raises_ValueError(name: str) -> None:
    """[F2] A wait is 0 or more seconds, or -1, at every call."""
    refuses(WAITS[name], NO_TIME, "timeout must be" if "acquire" in name else "wait must be")


@pytest.mark.parametrize("key", ["EXPIRE", "MAX_HOLD", "WAIT"])
def test_wrong_time_in_the_settings_raises(memory_locks: Any, key: str) -> None:
    """[F2] The settings take no more than the call sites; None isn't a time there."""
    for value in [None, *NO_TIME]:
        for entry in ({key: value}, {"LOCKS": {"order": {key: value}}}):
            memory_locks(**entry)
            with pytest.raises(InvalidLockBackend, match=f"{key} must be"):
                locks.lock("order")


def seconds_left() -> float:
    return current_grant().remaining()


def test_None_is_the_default_at_every_call() -> None:
    """[F2]"""
    lock: Lock
    for make in (locks.lock, locks.rlock, locks["default"].lock):
        lock = make("order", expire=None, wait=None, renew=None, on_lost=None, on_backend_error=None, name=None)
        assert lock.terms == locks.lock("order").terms
        assert lock.name == "order"
        grant = lock.acquire(timeout=None)
        assert grant
        grant.release()
    assert redis_lock("order", expire=None, wait=None)(lambda: round(seconds_left()))() == 30


def test_minus_one_waits_for_ever(memory_locks: Any) -> None:
    """[F2] At every call and in WAIT."""
    for value in (-1, -1.0):
        assert locks.lock("order", wait=value).terms.wait == inf
        memory_locks(WAIT=value, LOCKS={"order": {"WAIT": value}})
        assert locks.lock("order").terms.wait == locks.lock("cart").terms.wait == inf
        grant = locks.lock("order").acquire(timeout=value)
        assert grant
        grant.release()


def test_timeout_without_blocking_raises_ValueError() -> None:
    """[F2] `acquire(False, timeout)` is as contradictory as with threading.Lock, but for the default, -1."""
    values = [0, 1, 0.5, timedelta(seconds=1), nan, -2, True]
    message = r"acquire\(blocking=False\) takes no timeout"
    refuses(lambda value: locks.lock("order").acquire(False, value), values, message)
    with held_elsewhere("order"):
        for timeout in (None, -1):
            assert locks.lock("order").acquire(False, timeout) is None

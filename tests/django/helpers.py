"""Other threads, other holders, requests, and recorded events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.test import AsyncClient, Client

from django_redis_locks import Grant, clock, locks
from tests.probes.django import events

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which a test that hangs fails instead."""

AT_ONCE = 8.0
"""Seconds within which a call returns at once, also on a busy machine; less than the default wait of a lock."""

LEASE = 0.2
"""Seconds of a lease that is to run out. Acquire it with a wait: an answer that comes after its end is no grant."""

MEMORY = "django_redis_locks.backends.memory.MemoryBackend"


def in_thread(call: Callable[[], T]) -> T:
    """Call in a new thread, wait for it, and give back or raise what came of it."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where the test looks
            outcome.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, f"{call} hangs"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, awaited if it is a coroutine."""
    result = function(*args, **kwargs)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def seconds(shown: str) -> int:
    """Of a time as people are shown it: "1 min 29 s"."""
    factors = {"s": 1, "min": 60}
    words = shown.split()
    return sum(int(number) * factors[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@contextmanager
def held_elsewhere(key: str, using: str = "default", **terms: Any) -> Iterator[Grant]:
    """Another thread holds this lock."""
    grant = in_thread(locks[using].lock(key, **terms).acquire)
    try:
        yield grant
    finally:
        grant.release()


def ask(url: str, method: str = "get", *, asgi: bool = False, **headers: str) -> Any:
    """What a request of the test client is answered."""

    async def answer() -> Any:
        return await getattr(AsyncClient(), method)(url, headers=headers)

    return asyncio.run(answer()) if asgi else getattr(Client(), method)(url, headers=headers)


def refused(url: str, method: str = "get", *, key: str = "order", asgi: bool = False, **headers: str) -> Any:
    """What a request is answered whose lock is busy for the next 900 s."""
    with held_elsewhere(key, expire=900):
        return ask(url, method, asgi=asgi, **headers)


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something that is bound to happen."""
    end = clock.now() + seconds
    pause = threading.Event()
    while not condition():
        assert clock.now() < end, "it never happened"
        pause.wait(0.005)


class Events(list[events.Event]):
    """What a signal's receivers were sent, in order."""

    def of(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self if type(event) is kind]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self]

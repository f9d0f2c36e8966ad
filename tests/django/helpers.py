"""Helpers: calls in threads, locks held by another thread, requests, recorded events."""

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
"""Seconds after which a hanging test fails."""

AT_ONCE = 8.0
"""Seconds within which an immediate call returns on a busy machine; less than the default wait of a lock."""

LEASE = 0.2
"""Seconds of a lease that is to expire. Acquire with a wait: a reply after the end of the lease is no grant."""

MEMORY = "django_redis_locks.backends.memory.MemoryBackend"


def in_thread(call: Callable[[], T]) -> T:
    """Call a function in a new thread. Return its result, or raise its exception."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            outcome.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, f"{call} hangs"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def result_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, awaited if it is a coroutine."""
    result = function(*args, **kwargs)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def parse_seconds(shown: str) -> int:
    """The seconds of a displayed duration such as "1 min 29 s"."""
    factors = {"s": 1, "min": 60}
    words = shown.split()
    return sum(int(number) * factors[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@contextmanager
def held_elsewhere(key: str, using: str = "default", **options: Any) -> Iterator[Grant]:
    """Hold a lock in another thread."""
    grant = in_thread(locks[using].lock(key, **options).acquire)
    try:
        yield grant
    finally:
        grant.release()


def send_request(url: str, method: str = "get", *, asgi: bool = False, **headers: str) -> Any:
    """Send a request by the test client. Return the response."""

    async def answer() -> Any:
        return await getattr(AsyncClient(), method)(url, headers=headers)

    return asyncio.run(answer()) if asgi else getattr(Client(), method)(url, headers=headers)


def send_refused_request(
    url: str, method: str = "get", *, key: str = "order", asgi: bool = False, **headers: str
) -> Any:
    """Send a request while its lock is held for another 900 s. Return the response."""
    with held_elsewhere(key, expire=900):
        return send_request(url, method, asgi=asgi, **headers)


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for a condition. Fail after some seconds."""
    end = clock.now() + seconds
    pause = threading.Event()
    while not condition():
        assert clock.now() < end, "it never happened"
        pause.wait(0.005)


class Events(list[events.Event]):
    """The events sent to the receivers of signals, in order."""

    def of(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self if type(event) is kind]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self]

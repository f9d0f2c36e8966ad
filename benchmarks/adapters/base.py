"""What a library has to offer to be measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

LONG = 600  # seconds, of locks that are only held
LEASE = 30  # seconds, for every library
WAIT = 60  # seconds that a contended acquire may take
TTL = 300  # seconds, of cached values


class Adapter:
    """A library whose callers are threads. One object per process; every call of `acquire` makes a new lock of the
    library's own, as its users do with `with lock(...)`.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def prepare(self, key: str) -> None:
        """What has to lie in Redis before the first acquire."""

    def acquire(self, key: str) -> Any:
        """Wait for the lock; returns what `release` needs. Raises if it didn't get it."""
        raise NotImplementedError

    def release(self, held: Any) -> None:
        raise NotImplementedError

    def hold(self, key: str, lease: float) -> Any:
        """Acquire a lock with this lease and keep it renewed from now on."""
        raise NotImplementedError

    def occupy(self, key: str) -> None:
        """Acquire a lock for ten minutes and leave it held."""
        raise NotImplementedError

    def owns(self, held: Any) -> bool:
        """Whether Redis still says that `held` is ours."""
        raise NotImplementedError


class TaskAdapter:
    """A library whose callers are tasks. `start` runs in the loop, once."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        """Connect, where that needs the loop."""

    async def acquire(self, key: str) -> Any:
        raise NotImplementedError

    async def release(self, held: Any) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """End what would complain when the loop closes."""


class Cache:
    """A cache with a loader, whose callers are threads. One object per process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        """The value of the key; the loader's, if there is none yet."""
        raise NotImplementedError


class TaskCache:
    """The same for tasks. `start` runs in the loop, once."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        """Connect, where that needs the loop."""

    async def load(self, key: str, loader: Callable[[], Awaitable[Any]]) -> Any:
        raise NotImplementedError


class NotAcquired(Exception):
    """The library gave up waiting."""


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 6379

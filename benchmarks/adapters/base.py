"""Base classes of adapters: the methods that scenarios call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

LONG = 600  # seconds, of locks that are only held
LEASE = 30  # seconds, for every library
WAIT = 60  # seconds that a contended acquire may take
TTL = 300  # seconds, of cached values


class Adapter:
    """A library for threads. One object per process; each call of `acquire` makes a new lock object of the library, as
    `with lock(...)` does.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def prepare(self, key: str) -> None:
        """Write what Redis must contain before the first acquire."""

    def acquire(self, key: str) -> Any:
        """Wait for the lock. Return the argument of `release`. Raise if the lock wasn't acquired."""
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
        """Whether the lock is still held, according to Redis."""
        raise NotImplementedError


class TaskAdapter:
    """A library for asyncio tasks. `start` is called once, in the loop."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        """Connect, if that needs the loop."""

    async def acquire(self, key: str) -> Any:
        raise NotImplementedError

    async def release(self, held: Any) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Close what would warn when the loop closes."""


class Cache:
    """A cache with loaders, for threads. One object per process."""

    package = ""
    """The package whose calls the `misses` scenario counts; empty for none."""

    def __init__(self, url: str) -> None:
        self.url = url

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        """Return the value of the key. Call the loader if there is none."""
        raise NotImplementedError


class TaskCache:
    """A cache with loaders, for asyncio tasks. `start` is called once, in the loop."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        """Connect, if that needs the loop."""

    async def load(self, key: str, loader: Callable[[], Awaitable[Any]]) -> Any:
        raise NotImplementedError


class NotAcquired(Exception):
    """The library gave up waiting."""


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 6379

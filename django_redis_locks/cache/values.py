"""Serializers of cached values, and the envelope that adds to a value the time until which it is fresh."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple, Protocol

from ..core.clock import timestamp
from .results import MISSING


class Values(Protocol):
    """Serializes values."""

    def dumps(self, value: Any) -> Any:
        """Return a value as the cache stores it."""

    def loads(self, data: Any) -> Any:
        """Return the value of what the cache stores."""


class Pickled:
    """Pickles values to copy them for other callers of this process. For caches that serialize values themselves."""

    @staticmethod
    def dumps(value: Any) -> Any:
        """Return the pickle of a value."""
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def loads(data: Any) -> Any:
        """Return the value of a pickle."""
        return pickle.loads(data)  # noqa: S301 - as every cache of Django does


class DjangoRedis:
    """The serializer and compressor of a ``django_redis`` cache."""

    def __init__(self, client: Any) -> None:
        self.dumps = client.encode
        self.loads = client.decode


class Envelope(NamedTuple):
    """A value with the time until which it is fresh, as stored in caches that don't report remaining lifetimes, and with
    the stamps of its groups.

    ``until`` is Unix time; None: unknown. It decides when a value is loaded again, never whether a caller may store it.
    """

    value: Any
    until: float | None
    stamps: tuple[Any, ...] = ()


def wrap(value: Any, seconds: float | None, stamps: tuple[Any, ...] = ()) -> Envelope:
    """Return an envelope of a value that is fresh for some seconds."""
    return Envelope(value, None if seconds is None else timestamp() + seconds, stamps)


def unwrap(value: Any) -> Any:
    """Return the value in an envelope, or the object itself if it isn't one."""
    return value.value if type(value) is Envelope else value


class CachedValue(NamedTuple):
    """A value read from a cache, with its lifetime.

    Attributes:
        value: ``MISSING`` if there is none.
        fresh_for: seconds for which it is still fresh, negative if it is stale; None: forever, or unknown.
        remaining_ms: milliseconds until the cache drops it; -1: never, or unknown; -2: there is no value.
        stamps: the stamps of the groups that it was stored with; after a comparison, those that they have now.
    """

    value: Any
    fresh_for: float | None = None
    remaining_ms: int = -1
    stamps: tuple[Any, ...] = ()

    @property
    def fresh(self) -> bool:
        """Whether the value is fresh. One of unknown lifetime is."""
        return self.fresh_for is None or self.fresh_for > 0

    def newer_than(self, before: CachedValue) -> bool:
        """Whether this value is fresh, and was stored after the read that returned ``before``."""
        if self.value is MISSING or not self.fresh:
            return False
        return (
            before.value is MISSING
            or self.fresh_for is None
            or before.fresh_for is None
            or self.fresh_for > before.fresh_for
        )


NOT_FOUND = CachedValue(MISSING, None, -2)


def value_with_lifetime(value: Any, remaining_ms: int, stale: float) -> CachedValue:
    """Return a value that the cache drops in ``remaining_ms``; for the last ``stale`` seconds of that it is stale."""
    return CachedValue(value, None if remaining_ms == -1 else remaining_ms / 1000 - stale, remaining_ms)


def read_envelope(value: Any) -> CachedValue:
    """Return a value as read from a cache, with its lifetime if it is in an envelope."""
    if value is MISSING:
        return NOT_FOUND
    if type(value) is not Envelope:
        return CachedValue(value)
    if value.until is None:
        return CachedValue(value.value, stamps=value.stamps)
    fresh_for = value.until - timestamp()
    return CachedValue(value.value, fresh_for, round(fresh_for * 1000), value.stamps)

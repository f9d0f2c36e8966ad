"""Values as a cache keeps them."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple, Protocol

from ..core.clock import timestamp
from .results import MISSING


class Values(Protocol):
    """Makes a value into what is stored, and back."""

    def dumps(self, value: Any) -> Any: ...
    def loads(self, data: Any) -> Any: ...


class Pickled:
    """Of a cache that packs its values itself: a copy for each caller."""

    @staticmethod
    def dumps(value: Any) -> Any:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def loads(data: Any) -> Any:
        return pickle.loads(data)  # noqa: S301 - as every cache of Django does


class DjangoRedis:
    """Of ``django_redis``: its own serializer and compressor."""

    def __init__(self, client: Any) -> None:
        self.dumps = client.encode
        self.loads = client.decode


class Envelope(NamedTuple):
    """How a cache that doesn't tell how long a value has left keeps one that may be served when it is stale.

    ``until`` is on the wall clock: it decides when a value is loaded again, and never who may store it."""

    value: Any
    until: float


def wrap(value: Any, seconds: float) -> Envelope:
    """A value that is fresh for so long."""
    return Envelope(value, timestamp() + seconds)


def unwrap(value: Any) -> Any:
    """The value in what such a cache keeps."""
    return value.value if type(value) is Envelope else value


class CachedValue(NamedTuple):
    """What a look at the cache brought.

    Attributes:
        value: ``MISSING`` if there is none.
        left: seconds for which it is fresh, negative if it is stale; None: for ever, or nobody knows.
        lives: milliseconds until it is gone; -1 if it has no end, or nobody knows.
    """

    value: Any
    fresh_for: float | None = None
    remaining_ms: int = -1

    @property
    def fresh(self) -> bool:
        return self.fresh_for is None or self.fresh_for > 0

    def newer_than(self, before: CachedValue) -> bool:
        """Fresh, and stored since that look."""
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
    """A value that has so many milliseconds, the last ``stale`` seconds of which it is stale."""
    return CachedValue(value, None if remaining_ms == -1 else remaining_ms / 1000 - stale, remaining_ms)


def read_envelope(value: Any) -> CachedValue:
    """What a cache of another kind returned."""
    if value is MISSING:
        return NOT_FOUND
    if type(value) is not Envelope:
        return CachedValue(value)
    fresh_for = value.until - timestamp()
    return CachedValue(value.value, fresh_for, round(fresh_for * 1000))

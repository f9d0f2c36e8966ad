"""The result of a load, with its source."""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Source: TypeAlias = Literal["hit", "stale", "loaded", "waited", "default", "unlocked"]


class LoadResult(NamedTuple, Generic[T]):
    """A value and where it is from.

    Attributes:
        value: the value.
        source: ``"hit"``: the cache had it, fresh; ``"stale"``: the cache had it, past its ttl; ``"loaded"``: this
            caller loaded it; ``"waited"``: another caller loaded it while this one waited; ``"default"``: it is the
            option ``default``; ``"unlocked"``: this caller loaded it beside another one, or while the store was down,
            and it wasn't stored.
        fresh_for: seconds until it is due to be loaded again, negative if it is stale; None if never, or unknown.
        waited: seconds spent waiting for another caller.
    """

    value: T
    source: Source
    fresh_for: float | None = None
    waited: float = 0.0


class _Missing:
    """No value, as opposed to None."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        """It is false."""
        return False


MISSING: Final[Any] = _Missing()

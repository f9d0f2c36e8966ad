"""What a load came to, for those who ask."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias

Source: TypeAlias = Literal["hit", "stale", "loaded", "waited", "default", "unlocked"]


class LoadResult(NamedTuple):
    """A value, and how it was come by.

    Attributes:
        value: the value.
        source: ``"hit"``: it was there; ``"stale"``: it was there and had outlived its ttl; ``"loaded"``: by this caller;
            ``"waited"``: by another one meanwhile; ``"default"``: the caller's default; ``"unlocked"``: by this caller
            beside another one, or while the store was down, and not stored.
        fresh_for: seconds until it is due to be loaded again, negative if it is stale; None if never, or unknown.
        waited: seconds spent waiting for another caller.
    """

    value: Any
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
        return False


MISSING: Final[Any] = _Missing()

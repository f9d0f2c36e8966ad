"""The aliases and names that decorated callables use, recorded at decoration. The system checks compare them with the
settings."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Declared(Protocol):
    """A decorated callable."""

    name: str
    using: str


_declared: WeakSet[Declared] = WeakSet()

declare = _declared.add
"""Records a decorated callable, by a weak reference."""


def declared() -> list[tuple[str, str]]:
    """The alias and the name of each recorded callable."""
    return sorted({(one.using, one.name) for one in _declared})

"""Which aliases and names decorated callables use: known at decoration, before settings are, and compared with them by the
system checks."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Declared(Protocol):
    """A decorated callable."""

    name: str
    using: str


_declared: WeakSet[Declared] = WeakSet()

declare = _declared.add
"""Called with each, which is forgotten with its function."""


def declared() -> list[tuple[str, str]]:
    """The alias and the name of each."""
    return sorted({(one.using, one.name) for one in _declared})

"""Records the aliases and names of decorated callables. The system checks compare them with the settings."""

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
    """Return the alias and the name of each recorded callable."""
    return sorted({(decorated.using, decorated.name) for decorated in _declared})

"""Records the aliases and names of decorated callables. The system checks compare them with the settings."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Declared(Protocol):
    """A decorated callable."""

    name: str
    using: str
    features: frozenset[str]
    """What its lock needs of the store, as far as the decorator says: words of ``FEATURES``."""


_declared: WeakSet[Declared] = WeakSet()

declare = _declared.add
"""Records a decorated callable, by a weak reference."""


def declared() -> list[tuple[str, str]]:
    """Return the alias and the name of each recorded callable."""
    return sorted({(decorated.using, decorated.name) for decorated in _declared})


def needed_features() -> list[tuple[str, str, str]]:
    """Return the alias and the name of each recorded callable with each feature that it needs."""
    return sorted({(made.using, made.name, feature) for made in _declared for feature in made.features})

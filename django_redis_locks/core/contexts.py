"""The grants of the caller's context: a stack, of which tasks and threads inherit a copy.

Copies share what lies below, so that an acquire costs the same however many grants its context has.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .grant import Grant

Entry: TypeAlias = "int | Grant"
"""A grant's id, which keeps nothing alive; of a ``with lock:`` block the grant itself, until the block ends. The lock object
keeps nothing."""

FEW = 8
"""So many entries of released grants may stay in a stack, and as many as are held."""


class Link(NamedTuple):
    """An entry on top of others; ``size`` is how many they are together."""

    entry: Entry
    below: Link | None
    size: int


top: ContextVar[Link | None] = ContextVar("django_redis_locks_grants", default=None)


def entries() -> Iterator[Entry]:
    """Those of the caller's context, the newest first."""
    link = top.get()
    while link is not None:
        yield link.entry
        link = link.below


def contains(grant: Grant) -> bool:
    return any(entry == grant.id if type(entry) is int else entry is grant for entry in entries())


def without_released(kept: Collection[int]) -> Link | None:
    """The stack of the caller's context without grants that were released: ``kept`` are the ids of the others."""
    return _stacked([entry for entry in entries() if (entry in kept if isinstance(entry, int) else entry._block)])


def remove(grant: Grant) -> None:
    """The entry of a block's grant, if it is there."""
    mine = list(entries())
    if grant in mine:
        mine.remove(grant)
        top.set(_stacked(mine))


def _stacked(newest_first: list[Entry]) -> Link | None:
    link: Link | None = None
    for size, entry in enumerate(reversed(newest_first), 1):
        link = Link(entry, link, size)
    return link

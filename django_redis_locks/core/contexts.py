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
    return _pushed([entry for entry in entries() if (entry in kept if isinstance(entry, int) else entry._block)], None)


def remove(grant: Grant) -> None:
    """The entry of a block's grant, if it is there; what lies below is as it was."""
    above: list[Entry] = []
    link = top.get()
    while link is not None:
        if link.entry is grant:
            top.set(_pushed(above, link.below))
            return
        above.append(link.entry)
        link = link.below


def _pushed(newest_first: list[Entry], below: Link | None) -> Link | None:
    """These entries on top of others."""
    link = below
    for entry in reversed(newest_first):
        link = Link(entry, link, 1 if link is None else link.size + 1)
    return link

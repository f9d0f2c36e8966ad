"""The stack of grants in the caller's context (``contextvars``). Tasks and threads inherit a copy.

The stack is a linked list whose copies share their tails, so the cost of an acquire doesn't grow with its size.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .grant import Grant

Entry: TypeAlias = "int | Grant"
"""The id of a grant, so that the grant isn't referenced; but for a ``with lock:`` block the grant itself, until the
block ends."""

FEW = 8
"""The number of entries of released grants that may stay in a stack, plus one per held grant."""


Link: TypeAlias = "tuple[Entry, Link | None, int]"
"""An entry of the stack, the link below it, and the number of entries from here on. A plain tuple, because one is made
at each acquire."""


top: ContextVar[Link | None] = ContextVar("django_redis_locks_grants", default=None)


def entries() -> Iterator[Entry]:
    """Yield the entries of the caller's context, the newest first."""
    link = top.get()
    while link is not None:
        entry, link, _ = link
        yield entry


def contains(grant: Grant) -> bool:
    """Return whether the caller's context has an entry of this grant."""
    return any(entry == grant.id if type(entry) is int else entry is grant for entry in entries())


def without_released(kept: Collection[int]) -> Link | None:
    """Return the stack of the caller's context without released grants; ``kept`` contains the ids of the other
    grants."""
    return _pushed([entry for entry in entries() if (entry in kept if isinstance(entry, int) else entry._block)], None)


def remove(grant: Grant) -> None:
    """Remove the entry of a block's grant, if it exists; the entries below stay unchanged."""
    above: list[Entry] = []
    link = top.get()
    while link is not None:
        entry, link, _ = link
        if entry is grant:
            top.set(_pushed(above, link))
            return
        above.append(entry)


def _pushed(newest_first: list[Entry], below: Link | None) -> Link | None:
    """Return a stack with these entries on top of ``below``."""
    link = below
    for entry in reversed(newest_first):
        link = entry, link, 1 if link is None else link[2] + 1
    return link

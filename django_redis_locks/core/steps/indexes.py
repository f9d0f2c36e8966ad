"""The steps that list locks and records."""

from __future__ import annotations

from typing import Final, NamedTuple

UNCLEAR: Final = 4
"""The first element of the reply for a lock that only a minority of the servers of a Redlock has. The holder follows."""


class ReadIndex(NamedTuple):
    """``index/page``: read a page of an index, sorted by the ends of the leases.

    Keys: index.

    Attributes:
        which: "held", or "ended" for locks that weren't released before the end of their lease.
        offset: the number of entries to skip.
        most: the largest number of entries to return.
        last_first: 1 to sort in descending order.
    """

    which: str
    offset: int
    most: int
    last_first: int


class InspectLocks(NamedTuple):
    """``index/inspect``: read the holder or record under each key, and the number of its waiters.

    Keys: the locks, then their wait queues, then the ends of the leases of permits.

    Attributes:
        kind: the kind of lock that is expected under the keys.
    """

    kind: str

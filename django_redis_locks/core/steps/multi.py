"""The steps of several mutexes of one bucket."""

from __future__ import annotations

from typing import NamedTuple


class MemberRequest(NamedTuple):
    """One lock of an ``AcquireLocks``.

    Attributes:
        token: the token of its hold.
        lease: milliseconds until its lease ends.
        fair: 1 if it isn't free for a newcomer while others wait.
        holder: the description of the holder.
    """

    token: str
    lease: int
    fair: int
    holder: str


class AcquireLocks(NamedTuple):
    """``multi/acquire``: acquire all locks if each is free, or held with its token already; otherwise none of them.

    Keys: fence counter, locks, the wait queue of each lock, and the index unless the alias has none.

    Attributes:
        members: the request for each lock.
    """

    members: tuple[MemberRequest, ...]


class ReleaseLocks(NamedTuple):
    """``multi/release``: release those locks that are held with their tokens, and grant each to its next waiter.

    Keys: fence counter, locks, the wait queue of each lock, and the index unless the alias has none.

    Attributes:
        tokens: the token of each lock.
    """

    tokens: tuple[str, ...]

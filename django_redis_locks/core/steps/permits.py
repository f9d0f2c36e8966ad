"""The steps of permits, of which a semaphore and a read-write lock are made.

The keys of most steps are: lock, ends of its leases, wait queue, heartbeats, fence counter, and the index unless the alias
has none.
"""

from __future__ import annotations

from typing import NamedTuple

from .locks import UnexpectedGrant


class PermitWaiter(NamedTuple):
    """What an acquire says for a caller that may wait.

    Attributes:
        address: the address to register if the permits are taken; "" for none.
        place: when the first request of the caller arrived, on the store's clock; 0 for now, ``LAST`` to remove the
            address.
        waiter_ttl: milliseconds for which the waiter may be silent.
    """

    address: str
    place: int
    waiter_ttl: int


class AcquirePermits(NamedTuple):
    """``permits/acquire``: acquire permits if they are free and no other caller is before this one, or if the token has
    them already. Otherwise register the waiter.

    Attributes:
        token: the token of the hold.
        lease: milliseconds until the lease ends.
        holder: the description of the holder.
        kind: "semaphore" or "rwlock".
        limit: the limit that the client knows.
        permits: how many to acquire.
        waiter: for a caller that may wait.
    """

    token: str
    lease: int
    holder: str
    kind: str
    limit: int
    permits: int
    waiter: PermitWaiter | None = None


class ReleasePermits(NamedTuple):
    """``permits/release``: give the permits of a token back, and grant them to waiters.

    Attributes:
        token: the token of the hold.
    """

    token: str


class RenewPermits(NamedTuple):
    """``permits/renew``: extend the leases of the holds with these tokens, each only its own. No lease is shortened.

    Keys: for each hold the lock and the ends of its leases; and the index unless the alias has none.

    Attributes:
        lease: milliseconds until the leases end.
        tokens: the token of each hold.
    """

    lease: int
    tokens: tuple[str, ...]


class AdoptPermits(NamedTuple):
    """``permits/adopt``: store the holder of permits that were granted to a waiter, and extend the lease.

    Keys: lock, ends of its leases, and the index unless the alias has none.

    Attributes:
        lease: milliseconds until the lease ends.
        token: the token of the hold.
        fence: its fence.
        age: milliseconds since it was acquired.
        holder: the description of the holder.
    """

    lease: int
    token: str
    fence: int
    age: int
    holder: str


class DowngradePermits(NamedTuple):
    """``permits/downgrade``: give all permits of a token back but one, and grant them to waiters.

    Attributes:
        token: the token of the hold.
    """

    token: str


class InspectPermits(NamedTuple):
    """``permits/inspect``: list the holds.

    Keys: lock, ends of its leases.

    Attributes:
        kind: "semaphore" or "rwlock".
    """

    kind: str


class SetLimit(NamedTuple):
    """``permits/set_limit``: set the limit for all clients, and grant permits to waiters.

    Attributes:
        kind: "semaphore" or "rwlock".
        limit: the limit.
    """

    kind: str
    limit: int


class ForceReleasePermits(NamedTuple):
    """``permits/force_release``: drop holds regardless of their holders, notify all processes, and grant the permits to
    waiters.

    Attributes:
        channel: the channel of all processes.
        fences: the fences of the holds; empty for all holds.
    """

    channel: str
    fences: tuple[int, ...]


class UnregisterPermits(NamedTuple):
    """``permits/unregister``: remove a waiter, give back what was granted to it, and grant the permits to other waiters.

    Attributes:
        address: the address of the waiter; "" if it isn't registered any more.
        grant: a grant to give back unless a request has claimed it.
    """

    address: str
    grant: UnexpectedGrant | None = None

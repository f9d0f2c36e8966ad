"""The steps of a mutex, of the wait queue of any key, and of the fence counters."""

from __future__ import annotations

from typing import NamedTuple


class LockWaiter(NamedTuple):
    """What an acquire says for a caller that may wait.

    Attributes:
        handed: the token of a lock that was handed over within the process, and that this request takes over; "" for
            none.
        address: the address to register if the lock is busy; "" for none.
        enqueued_at: when the address was registered, on the store's clock; 0 for now, ``LAST`` to remove it.
        waiter_ttl: milliseconds to keep the registration.
    """

    handed: str
    address: str
    enqueued_at: int
    waiter_ttl: int


class AcquireLock(NamedTuple):
    """``lock/acquire``: acquire the lock if it is free, held with this token already, or handed over. If it is busy,
    register the waiter.

    Keys: lock, fence counter, with a waiter the wait queue, and the index unless the alias has none.

    Attributes:
        token: the token of the hold.
        lease: milliseconds until the lease ends.
        holder: the description of the holder.
        waiter: for a caller that may wait.
    """

    token: str
    lease: int
    holder: str
    waiter: LockWaiter | None = None


class AcquireAbove(NamedTuple):
    """``lock/acquire`` without a waiter, with a fence that several servers are to have in common.

    Keys: as of ``AcquireLock``.

    Attributes:
        token: the token of the hold.
        lease: milliseconds until the lease ends.
        holder: the description of the holder.
        least: the fence of a free lock exceeds this one.
    """

    token: str
    lease: int
    holder: str
    least: int


class FairWaiter(NamedTuple):
    """What an acquire of a fair lock says for a caller that may wait.

    Attributes:
        address: the address to register if the lock is busy.
        place: its place in line, which is when the caller's first request arrived, on the store's clock; 0 for now,
            ``LAST`` to remove it.
        waiter_ttl: milliseconds to keep the registration.
    """

    address: str
    place: int
    waiter_ttl: int


class AcquireFair(NamedTuple):
    """``lock/acquire_fair``: acquire the lock if it is free and no other waiter is before the caller in line, or if it is
    held with this token already. A free lock with waiters is granted to the first of them. If it is busy, register the
    waiter.

    Keys: lock, fence counter, wait queue, and the index unless the alias has none.

    Attributes:
        token: the token of the hold.
        lease: milliseconds until the lease ends.
        holder: the description of the holder.
        waiter: for a caller that may wait.
    """

    token: str
    lease: int
    holder: str
    waiter: FairWaiter | None = None


class NextTurn(NamedTuple):
    """The registration of a queue that gives the lock to the processes that have waited longer.

    Attributes:
        address: the address that is registered behind all others.
        waiter_ttl: milliseconds to keep the registration.
    """

    address: str
    waiter_ttl: int


class ReleaseLock(NamedTuple):
    """``lock/release``: release the lock if it is held with this token, and grant it to the next waiter.

    Keys: lock, wait queue, fence counter, and the index unless the alias has none.

    Attributes:
        token: the token of the hold.
        next_turn: what is registered before that, if anything.
    """

    token: str
    next_turn: NextTurn | None = None


class RenewLocks(NamedTuple):
    """``lock/renew``: extend the leases of the locks that are held with these tokens. No lease is shortened.

    Keys: the locks, and their index unless the alias has none.

    Attributes:
        lease: milliseconds until the leases end.
        tokens: the token of each lock.
    """

    lease: int
    tokens: tuple[str, ...]


class AdoptLock(NamedTuple):
    """``lock/adopt``: store the holder and the fence of a lock that was handed over or granted, and extend its lease.

    Keys: lock, and the index unless the alias has none.

    Attributes:
        lease: milliseconds until the lease ends.
        token: the token of the hold.
        fence: its fence.
        age: the milliseconds since the hold began.
        holder: the description of the holder.
    """

    lease: int
    token: str
    fence: int
    age: int
    holder: str


class TransferLock(NamedTuple):
    """``lock/transfer``, ``permits/transfer``: give a hold another token. A repeated request finds its own token.

    Keys: lock; for permits the ends of their leases; and the index unless the alias has none.

    Attributes:
        token: the token that it has.
        next_token: the token that it gets.
        lease: milliseconds after which the lease ends at the earliest.
        may_shorten: 1 if it ends then, also if that is earlier.
        fence: the fence of the hold; 0 for the stored one.
        age: the milliseconds since the hold began.
        holder: the description of the holder.
    """

    token: str
    next_token: str
    lease: int
    may_shorten: int
    fence: int
    age: int
    holder: str


class InspectLock(NamedTuple):
    """``lock/inspect``: read the holder of the lock.

    Keys: lock.

    Attributes:
        kind: the kind of lock that is expected under the key.
    """

    kind: str


class ForceReleaseLock(NamedTuple):
    """``lock/force_release``: release the lock, or delete the listed record, regardless of its holder.

    Keys: lock, wait queue, fence counter, and unless the alias has none the indexes of what is held and queued.

    Attributes:
        fence: the fence of the only hold to end; "" for any hold.
        channel: the channel of all processes.
        request_fence: 1 to ask the holder's process for its fence if the stored one may be older.
    """

    fence: int | str
    channel: str
    request_fence: int


class UnexpectedGrant(NamedTuple):
    """A grant that no queue of the process expects.

    Attributes:
        token: the token that the lock was granted to.
        fence: the fence of the grant.
    """

    token: str
    fence: int


class UnregisterWaiter(NamedTuple):
    """``waiters/unregister``: remove an address from the wait queue, and free the lock if it was granted to the token of
    this address. A lock that is free then is granted to the next waiter, or the next waiter is only woken.

    Keys: lock or record, wait queue, and if a lock can be granted its fence counter, and the index unless the alias has
    none.

    Attributes:
        address: the address; "" if it isn't registered any more.
        grant: a grant to give back unless a request has claimed it.
    """

    address: str
    grant: UnexpectedGrant | None = None


class RaiseFence(NamedTuple):
    """``fence/raise``: raise a fence counter.

    Keys: fence counter.

    Attributes:
        least: the smallest value that it has afterwards; 0 changes nothing.
    """

    least: int

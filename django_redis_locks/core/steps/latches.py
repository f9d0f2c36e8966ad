"""The steps of a latch."""

from __future__ import annotations

from typing import NamedTuple


class SetLatch(NamedTuple):
    """``latch/set``: set the count of a latch that is open.

    Keys: latch, fence counter, participants, recent requests.

    Attributes:
        nonce: identifies the copies of this request.
        size: how often it must be counted down.
        lifetime: milliseconds that the latch lives after its last change.
        nonce_ttl: milliseconds for which copies of this request are recognized.
    """

    nonce: str
    size: int
    lifetime: int
    nonce_ttl: int


class CountDown(NamedTuple):
    """``latch/count_down``: count a latch down by one, and wake all its waiters if it opens.

    Keys: latch, wait queue, participants, recent requests.

    Attributes:
        nonce: identifies the copies of this request.
        participant: the id that counts once; "" for none.
        nonce_ttl: milliseconds for which copies of this request are recognized.
    """

    nonce: str
    participant: str
    nonce_ttl: int


class LatchWaiter(NamedTuple):
    """What a read says for a caller that waits.

    Attributes:
        known: the generation that the caller found first; 0 if it hasn't asked yet.
        address: the address to register if the latch of this generation is closed; "" for none.
        enqueued_at: when the address was registered, on the store's clock; 0 for now.
        others_behind: 1 if other waiters of this queue may wait for another generation, so that it stays registered
            while the latch is closed.
        waiter_ttl: milliseconds to keep the registration.
    """

    known: int
    address: str
    enqueued_at: int
    others_behind: int
    waiter_ttl: int


class GetLatch(NamedTuple):
    """``latch/get``: read the latch, and register the waiter.

    Keys: latch, wait queue.

    Attributes:
        waiter: for a caller that waits.
    """

    waiter: LatchWaiter | None = None

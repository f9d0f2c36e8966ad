"""The steps of a latch for the memory backend. They do the same as the scripts under ``lua/latch``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from .store import LATCH, StoredValue, micros

if TYPE_CHECKING:
    from ...core.steps.latches import CountDown, GetLatch, SetLatch
    from .store import Store


@dataclass(slots=True)
class StoredLatch(StoredValue):
    """A latch. Its ``token`` is the nonce of the request that set it, its ``fence`` the generation.

    Attributes:
        left: what is left of the count.
        lifetime: the milliseconds that it lives after its last change.
        first: the generation since which each was counted down to 0.
        participants: the ids that have counted.
    """

    left: int = 0
    lifetime: int = 0
    first: int = 0
    participants: set[str] = field(default_factory=set)


def _find(store: Store, key: str) -> StoredLatch | list[Any] | None:
    """Return the latch, None if there is none, or the reply for a key that holds another value."""
    found = store.find(key)
    return found if found is None or isinstance(found, StoredLatch) else [-1, found.description()]


def set_count(store: Store, keys: tuple[str, ...], args: SetLatch) -> Any:
    """``latch/set``: set the count of a latch that is open."""
    key, counter, _, requests = keys
    nonce, size, lifetime, nonce_ttl = args
    found = _find(store, key)
    if isinstance(found, list):
        return found
    if store.remembers(requests, nonce):
        return 1
    refused = f"{nonce} refused"
    if store.remembers(requests, refused):
        return 0
    if found is not None and found.left:
        store.remember(requests, refused, nonce_ttl)
        return 0
    fence = store.next_fence(counter, 0 if found is None else found.fence)
    first, ends = fence if found is None else found.first, monotonic() + lifetime / 1000
    store.records[key] = StoredLatch(
        LATCH, nonce, fence, micros() // 1000, "", ends, left=size, lifetime=lifetime, first=first
    )
    store.remember(requests, nonce, nonce_ttl)
    return 1


def count_down(store: Store, keys: tuple[str, ...], args: CountDown) -> Any:
    """``latch/count_down``: count a latch down by one, and wake all its waiters if it opens."""
    key, waiters, _, requests = keys
    nonce, participant, nonce_ttl = args
    found = _find(store, key)
    if isinstance(found, list):
        return found
    left = 0 if found is None else found.left
    if store.remembers(requests, nonce):
        return left
    store.remember(requests, nonce, nonce_ttl)
    if found is None or not left or participant in found.participants:
        return left
    if participant:
        found.participants.add(participant)
    found.left -= 1
    found.ends = monotonic() + found.lifetime / 1000
    if not found.left:
        found.participants.clear()
        store.wake_all(key, waiters)
    return found.left


def get(store: Store, keys: tuple[str, ...], args: GetLatch) -> list[Any]:
    """``latch/get``: read the latch, and register the waiter."""
    key, waiters = keys
    found = _find(store, key)
    if isinstance(found, list):
        return found
    waiter, since = args.waiter, 0
    if waiter is not None and waiter.address:
        if found is not None and found.left and (found.fence == waiter.known or waiter.others_behind):
            since = store.enqueue(waiters, waiter.address, waiter.enqueued_at)
        else:
            store.dequeue(waiters, waiter.address)
    if found is None:
        return [0, 0, 0, 0, since]
    return [found.left, found.fence, found.first, found.ms_left(), since]

"""The data of the memory backend: locks, records, leases, fence counters, waiters, inboxes, indexes and cached
values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.clock import monotonic, timestamp
from ...core.keys import BROADCAST, CONFIRM
from ...core.tuning import INDEX_RETENTION, RESERVED_FENCES

OnMessage = Callable[[str, str], object]
"""Called with the first word of a message, and the key of the lock."""

LOCK, RECORD, LOAD, LATCH = "lock", "record", "load", "latch"


@dataclass(slots=True)
class StoredValue:
    """The value under the key of a lock, a record, a latch or a load's lease.

    Attributes:
        kind: ``LOCK``, ``RECORD``, ``LOAD`` or ``LATCH``.
        token: the token of the hold, or the nonce of the record's last write.
        fence: the fence, the version, or the generation of a load.
        since: when it was written, in milliseconds since 1970.
        holder: the description of the holder, the fields of a record, or the details of a load.
        ends: when its lease ends, by ``time.monotonic()``.
        reserved: waiters of the holder's process may have been given the fences after ``fence``.
        unclaimed: it was granted to a waiter, and no caller has claimed it yet by a request.
    """

    kind: str
    token: str
    fence: int
    since: int
    holder: str
    ends: float
    reserved: bool = False
    unclaimed: bool = False

    def ms_left(self) -> int:
        """Return the milliseconds until its lease ends."""
        return max(0, round((self.ends - monotonic()) * 1000))

    def busy(self) -> list[Any]:
        """Return the beginning of the reply for a busy lock."""
        return [0, self.ms_left(), self.fence, self.since, self.holder]

    def description(self) -> str:
        """Return what the key holds, for a command of another kind."""
        return "a record" if self.kind == RECORD else f"a lock of kind {self.kind}"

    def extend(self, lease: int) -> None:
        """Extend the lease to this many milliseconds from now; it is never shortened."""
        self.ends = max(self.ends, monotonic() + lease / 1000)


@dataclass(slots=True)
class Store:
    """The data of one ``LOCATION``.

    Attributes:
        mutex: guards all data.
        records: the locks, records, latches and leases, by key.
        fences: the fence counters and generations, by key.
        queues: for each key of waiters, the addresses with the times of their arrival.
        heartbeats: for each key of heartbeats, the addresses with the times until which they may be silent.
        inboxes: for each channel, the function that receives its messages.
        indexes: for each index, its locks with the ends of their leases.
        values: the cached values with the times at which they expire, or None.
        requests: for each key of recent requests, their nonces with the times until which they are kept.
    """

    mutex: Any = field(default_factory=threading.RLock)
    records: dict[str, StoredValue] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    heartbeats: dict[str, dict[str, float]] = field(default_factory=dict)
    inboxes: dict[str, OnMessage] = field(default_factory=dict)
    indexes: dict[str, dict[str, float]] = field(default_factory=dict)
    values: dict[str, tuple[bytes, float | None]] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all data, but neither inboxes nor fences."""
        for data in (self.records, self.queues, self.heartbeats, self.indexes, self.values, self.requests):
            data.clear()

    def add_to_index(self, listing: Sequence[str], lock: str, record: StoredValue, *, new: bool) -> None:
        """Enter a lock in the indexes, or move its entry. ``new``: also if it isn't listed yet."""
        for name in listing:
            index = self.indexes.setdefault(name, {})
            if new or lock in index:
                index[lock] = record.ends
            if new and record.fence % 100 == 0:
                for old in [lock for lock, ends in index.items() if ends < monotonic() - INDEX_RETENTION][:200]:
                    del index[old]

    def remove_from_index(self, listing: Sequence[str], lock: str) -> None:
        """Remove a lock from the indexes."""
        for name in listing:
            self.indexes.get(name, {}).pop(lock, None)

    def next_fence(self, counter: str, last: int = 0, reserved_fences: int = 0) -> int:
        """Return the next fence of a counter: larger than all before, and at least the time in microseconds."""
        fence = max(max(last + reserved_fences if last else 0, self.fences.get(counter, 0)) + 1, micros())
        self.fences[counter] = fence + reserved_fences
        return fence

    def enqueue(self, waiters: str, address: str, enqueued_at: int) -> int:
        """Add an address to a wait queue. Return when it arrived."""
        since = enqueued_at or micros()
        self.queues.setdefault(waiters, {})[address] = since
        return since

    def place_in_line(self, waiters: str, address: str) -> int:
        """Return the place of a waiter of a wait queue: that of its address if it is registered; otherwise now, but behind
        all others."""
        queue = self.queues.get(waiters, {})
        return queue.get(address) or max([micros(), *(1 + place for place in queue.values())])

    def is_first_in_line(self, waiters: str, address: str, place: int) -> bool:
        """Return whether no other waiter is before a registered address, or before this place in line (0: the last)."""
        queue = self.queues.get(waiters)
        if not queue:
            return True
        head = min(queue, key=lambda address: (queue[address], address))
        return head == address or 0 < place < queue[head]

    def dequeue(self, waiters: str, address: str) -> None:
        """Remove an address from a wait queue."""
        queue = self.queues.get(waiters, {})
        queue.pop(address, None)
        if not queue:
            self.queues.pop(waiters, None)

    def wake_all(self, lock: str, waiters: str) -> None:
        """Wake all waiters of a lock."""
        while self.wake(lock, waiters):
            pass

    def find_owned(self, lock: str, token: str) -> StoredValue | None:
        """Return the value of a lock that is held with this token."""
        record = self.find(lock)
        return record if record is not None and record.token == token and record.kind == LOCK else None

    def wake(self, lock: str, waiters: str) -> bool:
        """Notify the process that has waited longest. Processes without an inbox are skipped. Return whether one was
        notified."""
        while address := self._pop_waiter(waiters):
            channel, number, *_ = address.split(" ", 2)
            on_message = self.inboxes.get(channel)
            if on_message is not None:
                on_message(number, lock)
                return True
        return False

    def grant_after_lease(self, lock: str, keys: tuple[str, ...], own: str = "", place: int = 0) -> None:
        """Grant a free lock with waiters, because a lease has ended, to the first of them, unless that is the address
        ``own``, or a waiter at this place. As the script ``grant_after_lease`` it leaves a mark, at place 0, and removes
        the waiters of a process that has let the lease of such a grant end, too."""
        waiters = keys[0]
        mark = next((address for address, at in self.queues.get(waiters, {}).items() if at == 0), None)
        if mark is not None:
            self.dequeue(waiters, mark)
            channel = mark.split(" ", 1)[0]
            if own.split(" ", 1)[0] != channel:
                self._remove_waiters(lock, waiters, channel)
        if self.is_first_in_line(waiters, own, place):
            return
        granted = self.grant_next(lock, keys)
        if self.find(lock) is not None and waiters in self.queues:
            self.queues[waiters][granted] = 0

    def _remove_waiters(self, lock: str, waiters: str, channel: str) -> None:
        """Remove the waiters of a process, and notify them."""
        queue = self.queues.get(waiters, {})
        for address in sorted(queue, key=lambda address: (queue[address], address)):
            inbox, number, *_ = address.split(" ", 2)
            if inbox == channel:
                self.dequeue(waiters, address)
                if channel in self.inboxes:
                    self.inboxes[channel](number, lock)

    def grant_next(self, lock: str, keys: tuple[str, ...]) -> str:
        """Grant a free lock to the process that has waited longest. Processes without an inbox are skipped. Return
        the address whose process was notified, or ""."""
        waiters, counter, *listing = keys
        while address := self._pop_waiter(waiters):
            channel, number, *terms = address.split(" ", 4)
            on_message = self.inboxes.get(channel)
            terms = terms if terms and terms[1].isdigit() else []
            if on_message is None:
                if terms:  # as if it had been granted and freed
                    self.remove_from_index(listing, lock)
                continue
            if not terms:  # it waits for something else under this key
                on_message(number, lock)
                return address
            token, lease, holder = terms
            fence, ends = self.next_fence(counter, 0, RESERVED_FENCES), monotonic() + int(lease) / 1000
            record = StoredValue(LOCK, token, fence, micros() // 1000, holder, ends, reserved=True, unclaimed=True)
            self.records[lock] = record
            self.add_to_index(listing, lock, record, new=True)
            on_message(f"{number},{token},{fence}", lock)
            return address
        return ""

    def _pop_waiter(self, waiters: str) -> str:
        """Remove the first address from a wait queue, and a mark before it. Return it, or ""."""
        while queue := self.queues.get(waiters):
            address = min(queue, key=lambda address: (queue[address], address))
            is_mark = queue[address] == 0
            self.dequeue(waiters, address)
            if not is_mark:
                return address
        return ""

    def remembers(self, requests: str, nonce: str) -> bool:
        """Return whether a request with this nonce was answered lately."""
        return nonce in self.requests.get(requests, ())

    def remember(self, requests: str, nonce: str, nonce_ttl: int) -> None:
        """Keep the nonce of a request for ``nonce_ttl`` milliseconds, and remove old ones."""
        now, nonces = monotonic(), self.requests.setdefault(requests, {})
        while nonces and nonces[oldest := next(iter(nonces))] <= now:
            del nonces[oldest]
        nonces[nonce] = now + nonce_ttl / 1000

    def broadcast(self, lock: str, channel: str) -> None:
        """Notify every process."""
        for name, on_message in list(self.inboxes.items()):
            if name.startswith(channel.removesuffix(BROADCAST)):
                on_message(CONFIRM, lock)

    def read_value(self, key: str) -> tuple[int, bytes | None]:
        """Return the milliseconds until a value expires (-1: never, -2: there is no value), and the value."""
        value, ends = self.values.get(key, (None, None))
        if value is None or ends is None:
            return -2 if value is None else -1, value
        ms_left = round((ends - monotonic()) * 1000)
        if ms_left > 0:
            return ms_left, value
        del self.values[key]
        return -2, None

    def write_value(self, key: str, value: Any, ttl: int) -> None:
        """Store a value for ``ttl`` milliseconds; a negative ``ttl`` means without expiry."""
        data = value if isinstance(value, bytes) else str(value).encode()
        self.values[key] = data, None if ttl < 0 else monotonic() + ttl / 1000

    def find(self, lock: str) -> StoredValue | None:
        """Return the value under a key, unless its lease has ended."""
        record = self.records.get(lock)
        if record is not None and record.ends <= monotonic():
            del self.records[lock]
            return None
        return record


def micros() -> int:
    """Return the microseconds since 1970, the clock of fences."""
    return int(timestamp() * 1_000_000)

"""What the memory backend keeps: locks and records, counters, lines of waiters, inboxes and indexes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.clock import monotonic, timestamp
from ...core.keys import ALL, LOOK
from ...core.tuning import INDEX_RETENTION

OnMessage = Callable[[str, str], object]

LOCK, RECORD, LOAD = "lock", "record", "load"


@dataclass(slots=True)
class StoredValue:
    kind: str
    token: str
    fence: int
    since: int
    holder: str
    ends: float
    reserved: bool = False
    """Later holds of its process may have the fences after its own."""

    def left(self) -> int:
        return max(0, round((self.ends - monotonic()) * 1000))

    def busy(self) -> list[Any]:
        return [0, self.left(), self.fence, self.since, self.holder]

    def extend(self, lease: int) -> None:
        self.ends = max(self.ends, monotonic() + lease / 1000)


@dataclass(slots=True)
class Store:
    mutex: Any = field(default_factory=threading.RLock)
    records: dict[str, StoredValue] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the key of a lock's waiters: their addresses, and when they arrived."""
    inboxes: dict[str, OnMessage] = field(default_factory=dict)
    indexes: dict[str, dict[str, float]] = field(default_factory=dict)
    """By the key of an index: its locks, and when their leases end."""
    values: dict[str, tuple[bytes, float | None]] = field(default_factory=dict)
    """Of a cache: each value, and when it ends, if it does."""

    def add_to_index(self, listing: Sequence[str], lock: str, record: StoredValue, *, new: bool) -> None:
        for name in listing:
            index = self.indexes.setdefault(name, {})
            if new or lock in index:
                index[lock] = record.ends
            if new and record.fence % 10 == 0:
                for old in [lock for lock, ends in index.items() if ends < monotonic() - INDEX_RETENTION][:20]:
                    del index[old]

    def remove_from_index(self, listing: Sequence[str], lock: str) -> None:
        for name in listing:
            self.indexes.get(name, {}).pop(lock, None)

    def next_fence(self, counter: str, last: int = 0, reserved_fences: int = 0) -> int:
        fence = max(max(last + reserved_fences if last else 0, self.fences.get(counter, 0)) + 1, micros())
        self.fences[counter] = fence + reserved_fences
        return fence

    def enqueue(self, waiters: str, address: str, enqueued_at: int) -> int:
        since = enqueued_at or micros()
        self.queues.setdefault(waiters, {})[address] = since
        return since

    def dequeue(self, waiters: str, address: str) -> None:
        queue = self.queues.get(waiters, {})
        queue.pop(address, None)
        if not queue:
            self.queues.pop(waiters, None)

    def wake_all(self, lock: str, waiters: str) -> None:
        while self.wake(lock, waiters):
            pass

    def find_owned(self, lock: str, token: str) -> StoredValue | None:
        record = self.find(lock)
        return record if record is not None and record.token == token and record.kind == LOCK else None

    def wake(self, lock: str, waiters: str) -> bool:
        """Tell the one that has waited longest; a dead one is passed over."""
        while queue := self.queues.get(waiters):
            address = min(queue, key=lambda address: (queue[address], address))
            self.dequeue(waiters, address)
            channel, _, number = address.rpartition(" ")
            on_message = self.inboxes.get(channel)
            if on_message is not None:
                on_message(number, lock)
                return True
        return False

    def broadcast(self, lock: str, channel: str) -> None:
        """Notify every process."""
        for name, on_message in list(self.inboxes.items()):
            if name.startswith(channel.removesuffix(ALL)):
                on_message(LOOK, lock)

    def read_value(self, key: str) -> tuple[int, bytes | None]:
        """How many milliseconds a value has left (-1: for ever, -2: there is none), and the value."""
        value, ends = self.values.get(key, (None, None))
        if value is None or ends is None:
            return -2 if value is None else -1, value
        left = round((ends - monotonic()) * 1000)
        if left > 0:
            return left, value
        del self.values[key]
        return -2, None

    def write_value(self, key: str, value: Any, ttl: int) -> None:
        """Store a value for ``ttl`` milliseconds; below 0: for ever."""
        data = value if isinstance(value, bytes) else str(value).encode()
        self.values[key] = data, None if ttl < 0 else monotonic() + ttl / 1000

    def find(self, lock: str) -> StoredValue | None:
        record = self.records.get(lock)
        if record is not None and record.ends <= monotonic():
            del self.records[lock]
            return None
        return record


def micros() -> int:
    return int(timestamp() * 1_000_000)

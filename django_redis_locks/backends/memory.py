"""The store in this process: for tests, for development, and as the executable specification of every command.

It excludes for real, across the threads and tasks of one process, and nothing beyond it. Its leases run on
``time.monotonic()``, on purpose: under freezegun ``freezer.tick()`` makes them expire.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.constants import SPARE
from .base import Backend, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.effects import Command
    from .base import Listener

    Told = Callable[[str, str], object]


LOCK, RECORD = "lock", "record"


@dataclass(slots=True)
class _Record:
    kind: str
    token: str
    fence: int
    since: int
    holder: str
    ends: float

    def left(self) -> int:
        return max(0, round((self.ends - time.monotonic()) * 1000))

    def busy(self) -> list[Any]:
        return [0, self.left(), self.fence, self.since, self.holder]

    def prolong(self, lease: int) -> None:
        self.ends = max(self.ends, time.monotonic() + lease / 1000)


@dataclass(slots=True)
class _Store:
    mutex: Any = field(default_factory=threading.RLock)
    records: dict[str, _Record] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    lines: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the key of a lock's waiters: their addresses, and when they arrived."""
    inboxes: dict[str, Told] = field(default_factory=dict)

    def next_fence(self, counter: str, last: int = 0, spare: int = 0) -> int:
        fence = max(max(last + spare if last else 0, self.fences.get(counter, 0)) + 1, _micros())
        self.fences[counter] = fence + spare
        return fence

    def line_up(self, waiters: str, address: str, arrival: int) -> int:
        since = arrival or _micros()
        self.lines.setdefault(waiters, {})[address] = since
        return since

    def step_out(self, waiters: str, address: str) -> None:
        line = self.lines.get(waiters, {})
        line.pop(address, None)
        if not line:
            self.lines.pop(waiters, None)

    def wake_all(self, lock: str, waiters: str) -> None:
        while self.wake(lock, waiters):
            pass

    def mine(self, lock: str, token: str) -> _Record | None:
        record = self.find(lock)
        return record if record is not None and record.token == token and record.kind == LOCK else None

    def wake(self, lock: str, waiters: str) -> bool:
        """Tell the one that has waited longest; a dead one is passed over."""
        while line := self.lines.get(waiters):
            address = min(line, key=lambda address: (line[address], address))
            self.step_out(waiters, address)
            channel, _, number = address.rpartition(" ")
            told = self.inboxes.get(channel)
            if told is not None:
                told(number, lock)
                return True
        return False

    def find(self, lock: str) -> _Record | None:
        record = self.records.get(lock)
        if record is not None and record.ends <= time.monotonic():
            del self.records[lock]
            return None
        return record


def _micros() -> int:
    return time.time_ns() // 1000


_stores: dict[str, _Store] = {}


class _MemoryInbox(Inbox):
    def __init__(self, store: _Store, told: Told) -> None:
        self._store = store
        self._told = told
        self.after_fork_in_child()

    def hears(self, channel: str) -> str:
        name = channel + self._id
        return name if name in self._store.inboxes else ""

    def open(self, channel: str, then: Callable[[], object]) -> None:
        self._store.inboxes[channel + self._id] = self._told
        then()

    def after_fork_in_child(self) -> None:
        self._id = os.urandom(9).hex()


class MemoryBackend(Backend):
    """Locks of this process. Backends with the same ``LOCATION`` share their locks."""

    def __init__(self, location: str = "", options: Mapping[str, Any] | None = None) -> None:
        if options:
            raise TypeError(f"the memory backend has no option {next(iter(options))!r}")
        self.identity = f"memory:{location}"
        self._store = _stores.setdefault(location, _Store())

    def call(self, command: Command[Any]) -> Any:
        step = _steps[command.name]
        with self._store.mutex:
            return step(self._store, command.keys, *command.args)

    async def acall(self, command: Command[Any]) -> Any:
        return self.call(command)

    def inbox(self, listener: Listener) -> Inbox:
        return _MemoryInbox(self._store, listener.told)

    def after_fork_in_child(self) -> None:
        self._store.mutex = threading.RLock()
        self._store.records.clear()
        self._store.lines.clear()
        self._store.inboxes.clear()


def _what(record: _Record) -> str:
    return "a record" if record.kind == RECORD else f"a lock of kind {record.kind}"


def _acquire(
    store: _Store,
    keys: tuple[str, ...],
    token: str,
    lease: int,
    holder: str,
    handed: str | None = None,
    address: str | None = None,
    arrival: int = 0,
    more: int = 0,
    kept: int = 0,
) -> list[Any] | int:
    lock, counter = keys[:2]

    def stand(waits: bool, arrival: int = 0) -> list[int]:
        if address is None:
            return [0, 0]
        waiters = keys[2]
        since = 0
        if address and waits:
            since = store.line_up(waiters, address, arrival)
        elif address:
            store.step_out(waiters, address)
        return [since, int(len(store.lines.get(waiters, ())) > bool(since))]

    record = store.find(lock)
    if record is not None:
        if record.kind != LOCK:
            return [-1, _what(record)]
        if record.token == token:
            record.prolong(lease)
            return [1, record.fence, 0, *stand(bool(more))]
        if record.token != handed:
            return [*record.busy(), *stand(True, arrival)]
    fence = store.next_fence(counter, record.fence if record is not None else 0, 0 if handed is None else SPARE)
    store.records[lock] = _Record(LOCK, token, fence, _micros() // 1000, holder, time.monotonic() + lease / 1000)
    return fence if handed is None else [1, fence, int(record is None), *stand(bool(more))]


def _free(store: _Store, keys: tuple[str, ...], token: str, address: str = "", kept: int = 0) -> int:
    lock, waiters = keys[:2]
    if store.mine(lock, token) is None:
        return 0
    del store.records[lock]
    if address:
        store.line_up(waiters, address, 0)
    return 1 + store.wake(lock, waiters)


def _renew(store: _Store, keys: tuple[str, ...], lease: int, *tokens: str) -> list[int]:
    records = [store.mine(lock, token) for lock, token in zip(keys, tokens, strict=False)]
    for record in records:
        if record is not None:
            record.prolong(lease)
    return [int(record is not None) for record in records]


def _inspect(store: _Store, keys: tuple[str, ...], kind: str) -> list[Any]:
    record = store.find(keys[0])
    if record is None:
        return []
    return record.busy() if record.kind == kind else [-1, _what(record)]


def _force(store: _Store, keys: tuple[str, ...], fence: int | str) -> int:
    lock, waiters = keys[:2]
    record = store.find(lock)
    if record is None or record.kind == RECORD:
        return 0
    if fence != "" and not 0 <= int(fence) - record.fence <= SPARE:
        return 0
    del store.records[lock]
    return 1 + store.wake(lock, waiters)


def _leave(store: _Store, keys: tuple[str, ...], address: str) -> int:
    lock, waiters = keys
    store.step_out(waiters, address)
    return 2 * (store.find(lock) is None and store.wake(lock, waiters))


def _look(store: _Store, key: str) -> list[Any]:
    record = store.find(key)
    if record is None:
        return [0]
    if record.kind != RECORD:
        return [-1, _what(record)]
    return [0, record.left(), record.fence, record.holder]


def _get_record(
    store: _Store,
    keys: tuple[str, ...],
    known: int = 0,
    address: str = "",
    arrival: int = 0,
    more: int = 0,
    kept: int = 0,
) -> list[Any]:
    key, waiters = keys
    now = _look(store, key)
    if now[0] < 0:
        return now
    since = 0
    if address and (more or (now[2] if len(now) > 1 else 0) == known):
        since = store.line_up(waiters, address, arrival)
    elif address:
        store.step_out(waiters, address)
    return [*now, since]


def _put_record(store: _Store, keys: tuple[str, ...], known: int, nonce: str, lease: int, fields: str) -> list[Any]:
    key, waiters, counter = keys
    now = _look(store, key)
    record = store.records.get(key)
    if now[0] < 0:
        return now
    if record is not None and record.token == nonce:
        record.prolong(lease)
        return [1, record.fence]
    version = record.fence if record is not None else 0
    if version != known:
        return now
    fence = store.next_fence(counter, version)
    store.records[key] = _Record(RECORD, nonce, fence, _micros() // 1000, fields, time.monotonic() + lease / 1000)
    store.wake_all(key, waiters)
    return [1, fence]


def _touch_record(store: _Store, keys: tuple[str, ...], version: int, lease: int, shorten: int) -> list[Any]:
    now = _look(store, keys[0])
    if len(now) < 4 or now[2] != version:
        return now
    record = store.records[keys[0]]
    if shorten:
        record.ends = -inf
    record.prolong(lease)
    return [1, version]


def _drop_record(store: _Store, keys: tuple[str, ...], version: int, nonce: str) -> list[Any]:
    key, waiters = keys
    now = _look(store, key)
    if len(now) < 4 or (now[2] != version and store.records[key].token != nonce):
        return now
    del store.records[key]
    store.wake_all(key, waiters)
    return [1]


_steps: dict[str, Callable[..., Any]] = {
    "lock/acquire": _acquire,
    "lock/free": _free,
    "lock/renew": _renew,
    "lock/inspect": _inspect,
    "lock/force": _force,
    "queue/leave": _leave,
    "record/get": _get_record,
    "record/put": _put_record,
    "record/touch": _touch_record,
    "record/drop": _drop_record,
}

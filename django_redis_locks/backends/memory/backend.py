"""The memory backend: for tests, for development, and as the executable specification of every command.

Its locks exclude the threads and tasks of one process, but no other process. Leases use ``time.monotonic()``, so that
``freezer.tick()`` of freezegun makes them expire.
"""

from __future__ import annotations

import os
import threading
from math import inf
from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from ...core.server_info import MEMORY, Facts
from ...core.tuning import DEFAULT, RESERVED_FENCES, Tuning
from ..base import Backend, Subscriber
from . import loads
from .store import LOCK, RECORD, Store, StoredValue, micros

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.commands import Command
    from ..base import MessageHandler
    from .store import OnMessage

_stores: dict[str, Store] = {}


class _MemorySubscriber(Subscriber):
    def __init__(self, store: Store, on_message: OnMessage) -> None:
        self._store = store
        self._on_message = on_message
        self.after_fork_in_child()

    def channel_name(self, channel: str) -> str:
        name = channel + self._id
        return name if name in self._store.inboxes else ""

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        self._store.inboxes[channel + self._id] = self._on_message
        callback()

    def after_fork_in_child(self) -> None:
        self._id = os.urandom(9).hex()


class MemoryBackend(Backend):
    """A store in this process. Backends with the same ``LOCATION`` share it."""

    def __init__(self, location: str = "", options: Mapping[str, Any] | None = None, tuning: Tuning = DEFAULT) -> None:
        if options:
            raise TypeError(f"the memory backend has no option {next(iter(options))!r}")
        self.identity = f"memory:{location}"
        self._store = _stores.setdefault(location, Store())

    def call(self, command: Command[Any]) -> Any:
        step = _steps[command.name]
        with self._store.mutex:
            return step(self._store, command.keys, *command.args)

    async def acall(self, command: Command[Any]) -> Any:
        return self.call(command)

    def facts(self, prefix: str, timeout: float) -> Facts:
        return Facts(MEMORY, address=self.identity, ahead=0.0)

    def clear(self) -> None:
        """Forget all locks and records without notifying waiters. For isolation between tests."""
        with self._store.mutex:
            self._store.records.clear()
            self._store.queues.clear()
            self._store.indexes.clear()
            self._store.values.clear()

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        return _MemorySubscriber(self._store, handler.on_message)

    def after_fork_in_child(self) -> None:
        self._store.mutex = threading.RLock()
        self._store.records.clear()
        self._store.queues.clear()
        self._store.inboxes.clear()
        self._store.indexes.clear()
        self._store.values.clear()


def _description(record: StoredValue) -> str:
    return "a record" if record.kind == RECORD else f"a lock of kind {record.kind}"


def _acquire(
    store: Store,
    keys: tuple[str, ...],
    token: str,
    lease: int,
    holder: str,
    handed: str | None = None,
    address: str | None = None,
    enqueued_at: int = 0,
    more: int = 0,
    waiter_ttl: int = 0,
) -> list[Any] | int:
    lock, counter = keys[:2]
    listing = keys[2 if handed is None else 3 :]

    def register(waits: bool, enqueued_at: int = 0) -> list[int]:
        if address is None:
            return [0, 0]
        waiters = keys[2]
        since = 0
        if address and waits:
            since = store.enqueue(waiters, address, enqueued_at)
        elif address:
            store.dequeue(waiters, address)
        return [since, int(len(store.queues.get(waiters, ())) > bool(since))]

    record = store.find(lock)
    if record is not None:
        if record.kind != LOCK:
            return [-1, _description(record)]
        if record.token == token:
            record.extend(lease)
            store.add_to_index(listing, lock, record, new=False)
            return [1, record.fence, 0, *register(bool(more))]
        if record.token != handed:
            return [*record.busy(), *register(True, enqueued_at)]
    last = 0 if record is None else record.fence
    fence = store.next_fence(counter, last, 0 if handed is None else RESERVED_FENCES)
    ends = monotonic() + lease / 1000
    waits = handed is not None
    new = store.records[lock] = StoredValue(LOCK, token, fence, micros() // 1000, holder, ends, reserved=waits)
    store.add_to_index(listing, lock, new, new=True)
    return fence if handed is None else [1, fence, int(record is None), *register(bool(more))]


def _release(store: Store, keys: tuple[str, ...], token: str, address: str = "", waiter_ttl: int = 0) -> int:
    lock, waiters = keys[:2]
    if store.find_owned(lock, token) is None:
        return 0
    del store.records[lock]
    store.remove_from_index(keys[2:], lock)
    if address:
        store.enqueue(waiters, address, 0)
    return 1 + store.wake(lock, waiters)


def _renew(store: Store, keys: tuple[str, ...], lease: int, *tokens: str) -> list[int]:
    records = [store.find_owned(lock, token) for lock, token in zip(keys, tokens, strict=False)]
    for lock, record in zip(keys, records, strict=False):
        if record is not None:
            record.extend(lease)
            store.add_to_index(keys[len(tokens) :], lock, record, new=False)
    return [int(record is not None) for record in records]


def _adopt(store: Store, keys: tuple[str, ...], lease: int, token: str, fence: int, age: int, holder: str) -> list[int]:
    record = store.find_owned(keys[0], token)
    if record is not None and (record.fence < fence or (record.fence == fence and record.reserved)):
        record.fence, record.since, record.holder, record.reserved = fence, micros() // 1000 - age, holder, False
    return _renew(store, keys, lease, token)


def _inspect(store: Store, keys: tuple[str, ...], kind: str) -> list[Any]:
    record = store.find(keys[0])
    if record is None:
        return []
    return record.busy() if record.kind == kind else [-1, _description(record)]


def _force_release(store: Store, keys: tuple[str, ...], fence: int | str, channel: str, ask: int) -> int:
    lock, waiters = keys[:2]
    record = store.find(lock)
    if record is None:
        return 0
    if record.kind == RECORD:
        if "." not in record.token or fence not in ("", record.fence):
            return 0
        del store.records[lock]
        store.remove_from_index(_record_index(record.token, keys[2:]), lock)
        store.broadcast(lock, channel)
        store.wake_all(lock, waiters)
        return 1
    after = 0 if fence == "" else int(fence) - record.fence
    if fence != "" and record.reserved and ask and 0 <= after <= RESERVED_FENCES:
        store.broadcast(lock, channel)
        return 3
    if after:
        return 0
    del store.records[lock]
    store.remove_from_index(keys[2:3], lock)
    store.broadcast(lock, channel)
    return 1 + store.wake(lock, waiters)


def _page(store: Store, keys: tuple[str, ...], which: str, offset: int, most: int, last_first: int) -> list[int | str]:
    now, clock = micros() // 1000, monotonic()
    index = store.indexes.get(keys[0], {})
    found = sorted(
        ((ends, lock) for lock, ends in index.items() if (ends > clock) == (which == "held")), reverse=bool(last_first)
    )
    page = [(lock, now + round((ends - clock) * 1000)) for ends, lock in found[offset : offset + most]]
    return [now, len(found), *(value for pair in page for value in pair)]


def _inspect_many(store: Store, keys: tuple[str, ...], kind: str) -> list[Any]:
    return [
        micros() // 1000,
        *(
            [len(store.queues.get(waiters, ())), *(_listed_record(store, lock) or _inspect(store, (lock,), kind))]
            for lock, waiters in zip(keys, keys[len(keys) // 2 :], strict=False)
        ),
    ]


def _listed_record(store: Store, lock: str) -> list[Any]:
    """Return the reply for a record, with the index that lists it; [] if the key holds none."""
    record = store.find(lock)
    if record is None or record.kind != RECORD:
        return []
    return [1, record.left(), record.fence, record.holder, record.token.partition(".")[2]]


def _raise_fence(store: Store, keys: tuple[str, ...], least: int) -> list[str]:
    (counter,) = keys
    last = store.fences.get(counter, 0)
    if last < least:
        last = store.fences[counter] = least
    return [str(last), str(micros())]


def _unregister(store: Store, keys: tuple[str, ...], address: str) -> int:
    lock, waiters = keys
    store.dequeue(waiters, address)
    return 2 * (store.find(lock) is None and store.wake(lock, waiters))


def _read_record(store: Store, key: str) -> list[Any]:
    record = store.find(key)
    if record is None:
        return [0]
    if record.kind != RECORD:
        return [-1, _description(record)]
    return [0, record.left(), record.fence, record.holder]


def _get_record(
    store: Store,
    keys: tuple[str, ...],
    known: int = 0,
    address: str = "",
    enqueued_at: int = 0,
    more: int = 0,
    waiter_ttl: int = 0,
) -> list[Any]:
    key, waiters = keys
    now = _read_record(store, key)
    if now[0] < 0:
        return now
    since = 0
    if address and (more or (now[2] if len(now) > 1 else 0) == known):
        since = store.enqueue(waiters, address, enqueued_at)
    elif address:
        store.dequeue(waiters, address)
    return [*now, since]


def _record_index(nonce: str, indexes: Sequence[str]) -> Sequence[str]:
    """Return the index that lists a record, which the end of its nonce names."""
    for index, end in zip(indexes, (".held", ".queued"), strict=False):
        if nonce.endswith(end):
            return (index,)
    return ()


def _put_record(store: Store, keys: tuple[str, ...], known: int, nonce: str, lease: int, fields: str) -> list[Any]:
    key, waiters, counter, *indexes = keys
    now = _read_record(store, key)
    record = store.records.get(key)
    if now[0] < 0:
        return now
    index = _record_index(nonce, indexes)
    if record is not None and record.token == nonce:
        record.extend(lease)
        store.add_to_index(index, key, record, new=False)
        return [1, record.fence]
    version = record.fence if record is not None else 0
    if version != known:
        return now
    if record is not None:
        store.remove_from_index(_record_index(record.token, indexes), key)
    fence = store.next_fence(counter, version)
    new = store.records[key] = StoredValue(RECORD, nonce, fence, micros() // 1000, fields, monotonic() + lease / 1000)
    store.add_to_index(index, key, new, new=True)
    store.wake_all(key, waiters)
    return [1, fence]


def _touch_record(store: Store, keys: tuple[str, ...], version: int, lease: int, shorten: int) -> list[Any]:
    key, *indexes = keys
    now = _read_record(store, key)
    if len(now) < 4 or now[2] != version:
        return now
    record = store.records[key]
    if shorten:
        record.ends = -inf
    record.extend(lease)
    store.add_to_index(_record_index(record.token, indexes), key, record, new=False)
    return [1, version]


def _drop_record(store: Store, keys: tuple[str, ...], version: int, nonce: str) -> list[Any]:
    key, waiters, *indexes = keys
    now = _read_record(store, key)
    if len(now) < 4 or (now[2] != version and store.records[key].token != nonce):
        return now
    store.remove_from_index(_record_index(store.records.pop(key).token, indexes), key)
    store.wake_all(key, waiters)
    return [1]


_steps: dict[str, Callable[..., Any]] = {
    "lock/acquire": _acquire,
    "lock/release": _release,
    "lock/renew": _renew,
    "lock/adopt": _adopt,
    "lock/inspect": _inspect,
    "lock/force_release": _force_release,
    "waiters/unregister": _unregister,
    "fence/raise": _raise_fence,
    "index/page": _page,
    "index/inspect": _inspect_many,
    "record/get": _get_record,
    "record/put": _put_record,
    "record/touch": _touch_record,
    "record/drop": _drop_record,
    "load/get": loads.get,
    "load/read": loads.read,
    "load/claim": loads.claim,
    "load/renew": loads.renew,
    "load/store": loads.store_value,
    "load/defer": loads.defer,
    "load/give_up": loads.give_up,
    "load/invalidate": loads.invalidate,
    "load/put": loads.put,
    "load/block": loads.block,
    "load/unblock": loads.unblock,
    "load/clear": loads.clear,
}

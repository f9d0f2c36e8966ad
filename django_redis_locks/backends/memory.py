"""The store in this process: for tests, for development, and as the executable specification of every command.

It excludes for real, across the threads and tasks of one process, and nothing beyond it. Its leases run on
``time.monotonic()``, on purpose: under freezegun ``freezer.tick()`` makes them expire.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.effects import Command


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

    def find(self, lock: str) -> _Record | None:
        record = self.records.get(lock)
        if record is not None and record.ends <= time.monotonic():
            del self.records[lock]
            return None
        return record


_stores: dict[str, _Store] = {}


class MemoryBackend(Backend):
    """Locks of this process. Backends with the same ``LOCATION`` share their locks."""

    announces: ClassVar[bool] = True

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

    def after_fork_in_child(self) -> None:
        self._store.mutex = threading.RLock()
        self._store.records.clear()


def _acquire(
    store: _Store, keys: tuple[str, ...], token: str, lease: int, kind: str, holder: str, remember: int
) -> list[Any]:
    lock, counter = keys[0], keys[1]
    record = store.find(lock)
    if record is None:
        micros = time.time_ns() // 1000
        fence = store.fences[counter] = max(store.fences.get(counter, 0) + 1, micros)
        store.records[lock] = _Record(kind, token, fence, micros // 1000, holder, time.monotonic() + lease / 1000)
        return [1, fence]
    if record.kind != kind:
        return [-1, f"a lock of kind {record.kind}"]
    if record.token != token:
        return record.busy()
    record.prolong(lease)
    return [1, record.fence]


def _free(store: _Store, keys: tuple[str, ...], token: str) -> int:
    record = store.find(keys[0])
    if record is None or record.token != token:
        return 0
    del store.records[keys[0]]
    return 1


def _renew(store: _Store, keys: tuple[str, ...], token: str, lease: int) -> int:
    record = store.find(keys[0])
    if record is None or record.token != token:
        return 0
    record.prolong(lease)
    return 1


def _inspect(store: _Store, keys: tuple[str, ...], kind: str) -> list[Any]:
    record = store.find(keys[0])
    if record is None:
        return []
    return record.busy() if record.kind == kind else [-1, f"a lock of kind {record.kind}"]


def _force(store: _Store, keys: tuple[str, ...], fence: int | str) -> int:
    record = store.find(keys[0])
    if record is None or fence not in ("", record.fence):
        return 0
    del store.records[keys[0]]
    return 1


_steps: dict[str, Callable[..., Any]] = {
    "lock/acquire": _acquire,
    "lock/free": _free,
    "lock/renew": _renew,
    "lock/inspect": _inspect,
    "lock/force": _force,
}

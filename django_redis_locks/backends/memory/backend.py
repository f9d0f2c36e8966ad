"""The memory backend: for tests, for development, and as the executable specification of every command.

Its locks exclude the threads and tasks of one process, but no other process. Leases use ``time.monotonic()``, so that
``freezer.tick()`` of freezegun makes them expire.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from ...core.server_info import MEMORY, Facts, Topology
from ...core.tuning import DEFAULT, Tuning
from ..base import FEATURES, Backend, Subscriber
from . import indexes, latches, loads, locks, multi, permits, records
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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

    supports = frozenset(FEATURES)

    def __init__(self, location: str = "", options: Mapping[str, Any] | None = None, tuning: Tuning = DEFAULT) -> None:
        if options:
            raise TypeError(f"the memory backend has no option {next(iter(options))!r}")
        self.identity = f"memory:{location}"
        self._store = _stores.setdefault(location, Store())

    def call(self, command: Command[Any]) -> Any:
        step = _steps[command.name]
        with self._store.mutex:
            return step(self._store, command.keys, command.args)

    async def acall(self, command: Command[Any]) -> Any:
        return self.call(command)

    def facts(self, prefix: str, timeout: float) -> Facts:
        return Facts(MEMORY, address=self.identity, ahead=0.0)

    def topology(self, key: str = "") -> Topology:
        return Topology(MEMORY)

    def clear(self) -> None:
        """Forget all locks and records without notifying waiters. For isolation between tests."""
        with self._store.mutex:
            self._store.clear()

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        return _MemorySubscriber(self._store, handler.on_message)

    def after_fork_in_child(self) -> None:
        self._store.mutex = threading.RLock()
        self._store.clear()
        self._store.inboxes.clear()


_steps: dict[str, Callable[..., Any]] = {
    "lock/acquire": locks.acquire,
    "lock/acquire_fair": locks.acquire_fair,
    "lock/release": locks.release,
    "lock/renew": locks.renew,
    "lock/adopt": locks.adopt,
    "lock/transfer": locks.transfer,
    "lock/inspect": locks.inspect,
    "lock/force_release": locks.force_release,
    "waiters/unregister": locks.unregister,
    "multi/acquire": multi.acquire,
    "multi/release": multi.release,
    "permits/acquire": permits.acquire,
    "permits/release": permits.release,
    "permits/renew": permits.renew,
    "permits/adopt": permits.adopt,
    "permits/downgrade": permits.downgrade,
    "permits/transfer": permits.transfer,
    "permits/inspect": permits.inspect,
    "permits/set_limit": permits.set_limit,
    "permits/force_release": permits.force_release,
    "permits/unregister": permits.unregister,
    "fence/raise": locks.raise_fence,
    "index/page": indexes.page,
    "index/inspect": indexes.inspect_many,
    "record/get": records.get,
    "record/peek": records.peek,
    "record/put": records.put,
    "record/touch": records.touch,
    "record/drop": records.drop,
    "latch/set": latches.set_count,
    "latch/count_down": latches.count_down,
    "latch/get": latches.get,
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

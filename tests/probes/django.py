"""Access to the internals of the Django layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_redis_locks import Grant, dead_holders, inspection, locks, open_transactions
from django_redis_locks.admin.queryset import id_of as admin_id
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.redis import server_info
from django_redis_locks.conf import settings
from django_redis_locks.console.console import actor as console_actor
from django_redis_locks.core import events
from django_redis_locks.core.registry import registry
from django_redis_locks.core.server_info import Topology
from django_redis_locks.core.tuning import RESERVED_FENCES
from django_redis_locks.topology_text import describe

__all__ = ["RESERVED_FENCES", "admin_id", "console_actor", "events"]


def keys_held_in_memory() -> list[str]:
    """The keys with a live lease in all memory stores of this process."""
    stores = list(memory._stores.values())
    return sorted(str(key) for store in stores for key, record in list(store.records.items()) if record.ms_left())


def holds_of_this_process() -> int:
    """How many locks this process holds by its own knowledge, in all threads and tasks."""
    return len(registry)


def waiters(key: str) -> int:
    """How many threads and tasks of this process wait for a lock."""
    queues = locks["default"].engine._queues._queues.get(locks.lock(key).lock_id, {})
    return sum(len(queue.waiters) for queue in list(queues.values()))


def maintenance_thread_runs() -> bool:
    return locks["default"].engine._maintenance._thread.runs


def empty_store() -> None:
    """Empty the memory stores, like FLUSHALL: holders detect it at their next renewal."""
    locks["default"].engine.backend.clear()


def run_in_maintenance_thread(job: Callable[[], object]) -> None:
    locks["default"].engine._maintenance.submit(job)


def repeat_warnings() -> None:
    """Forget which warnings were logged, so that each is logged once more."""
    open_transactions._warned.clear()
    settings._warn.cache_clear()


def warn_of_names(monkeypatch: Any, most: int) -> None:
    """Set the maximum number of names for which a warning is logged."""
    monkeypatch.setattr(open_transactions, "MAX_NAMES_WARNED", most)


def remember_rows(monkeypatch: Any, most: int) -> None:
    """Set the number of fenced rows for which a grant remembers the time of its write."""
    from django_redis_locks import fencing

    monkeypatch.setattr(fencing, "MAX_ROWS", most)


def commands_asked_for() -> list[str]:
    """The commands that a user of the server must be permitted."""
    return [*server_info.PROBES]


def report_server(monkeypatch: Any, **info: str) -> None:
    """Add or replace fields in the INFO of servers."""
    parse = server_info._parse_info
    monkeypatch.setattr(server_info, "_parse_info", lambda reply: {**parse(reply), **info})


def holds_of_dead_processes() -> list[inspection.LockInfo]:
    return dead_holders.find_dead()


def free_holds(found: list[inspection.LockInfo]) -> list[inspection.LockInfo]:
    """Free these locks, unless they have other holders since."""
    return dead_holders.release_found(found, "")


def kind_of(grant: Grant | None) -> str:
    """The class of the lock of a grant."""
    return type(grant.lock).__name__ if grant is not None else ""


def store_text(kind: str, servers: str, away: int) -> str:
    """Return the name of a store with these servers, a letter each, of which some are away."""
    return describe(Topology(kind, tuple(servers)), away)

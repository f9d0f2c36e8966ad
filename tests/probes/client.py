"""Internals of the client of one alias: wait queues, holds, mutexes, idle connections, maintenance thread."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from django_redis_locks import clock, locks
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.redis.server_errors import CLUSTER_HINTS, HINTS
from django_redis_locks.backends.redis.slot_table import slot_of
from django_redis_locks.backends.zookeeper import client as zookeeper
from django_redis_locks.core import tokens
from django_redis_locks.core.hold import State, validity
from django_redis_locks.core.registry import registry
from django_redis_locks.engine import engine
from django_redis_locks.engine import maintenance as maintenance_module
from django_redis_locks.engine.renewal import Renewals

if TYPE_CHECKING:
    import pytest

    from django_redis_locks import Grant, Lock
    from django_redis_locks.client import Locks


__all__ = ["slot_of"]


def queue_count(client: Locks) -> int:
    """How many local wait queues exist."""
    return len(client.engine._queues)


def waiting_callers(client: Locks, lock: Lock) -> int:
    """How many callers of this process wait for the lock, in threads and in all event loops."""
    queues = client.engine._queues._queues.get(lock.lock_id, {})
    return sum(len(queue.waiters) for queue in list(queues.values()))


def registered_queues(client: Locks, lock: Lock) -> int:
    """How many local queues of a lock are registered in the store and have answered all wake-ups."""
    queues = client.engine._queues._queues.get(lock.lock_id, {})
    return sum(bool(queue.enqueued_at) and queue.wakeups_answered == queue.wakeups for queue in list(queues.values()))


def is_registered(lock: Lock) -> bool:
    """Whether this process knows of a grant of the lock."""
    return lock.lock_id in registry.known


def token_prefix() -> str:
    """The common prefix of all tokens of this process."""
    return tokens.mint_token()[:16]


def lease_began(grant: Grant, lease: int) -> float:
    """When a lease of this many milliseconds began, by the deadline of the grant."""
    return grant.hold.deadline - validity(lease)


def connections_of_this_loop(client: Locks) -> int:
    """How many connections to Redis the running event loop has."""
    return len(client.engine.backend._loop_connections._by_loop[asyncio.get_running_loop()]()._open_connections)


def rights_named_when_refused() -> list[str]:
    """The Redis permissions that the error message for a missing permission lists."""
    return [right for right in re.findall(r"\+(\w+)", HINTS["NOPERM"]) if right != "select"]


def rights_named_on_a_cluster() -> list[str]:
    """Those that the error message of a node of a Cluster lists."""
    return [right for right in re.findall(r"\+([\w|]+)", CLUSTER_HINTS["NOPERM"]) if right != "select"]


@contextmanager
def mutexes_held(client: Locks) -> Iterator[None]:
    """Hold every mutex of the engine, and of a memory store, inside the block."""
    engine = client.engine
    with ExitStack() as stack:
        for table in (registry, engine._queues, engine._maintenance):
            stack.enter_context(table._mutex)
        if hasattr(engine.backend, "_store"):
            stack.enter_context(engine.backend._store.mutex)
        yield


@contextmanager
def aliases_mutex_held() -> Iterator[None]:
    with locks._mutex.rlock:
        yield


def forget_aliases() -> None:
    """Let the next access open each alias again."""
    locks._clients.clear()


def run_in_background(client: Locks, job: Callable[[], object]) -> None:
    client.engine._maintenance.submit(job)


def timer_count(client: Locks) -> int:
    return len(client.engine._maintenance._timers)


def call_before_each_renewal_result(patch: pytest.MonkeyPatch, wait: Callable[[], object]) -> None:
    """Let the maintenance thread call ``wait`` between the reply to a renewal and its effect."""
    note = Renewals._record_reply

    def late(self: Renewals, *result: Any) -> None:
        wait()
        note(self, *result)

    patch.setattr(Renewals, "_record_reply", late)


def add_idle_connections(client: Locks, number: int) -> None:
    pool = client.engine.backend._pool
    for connection in [pool._connect() for _ in range(number)]:
        pool.push(connection, clock.now())


def idle_connection_count(client: Locks) -> int:
    return len(client.engine.backend._pool._idle)


def forget_locks() -> None:
    """Forget all holds, so that none is released, renewed or reported as lost later, and empty the memory stores."""
    for grant in list(registry._grants.values()):
        registry.forget(grant)
        grant.hold.state = State.GONE
    for maintenance in maintenance_module.maintenance_threads():
        for hold in maintenance.renewed():  # also of records, which have no grant
            hold.state = State.GONE
    for queues in list(engine._queues.values()):
        queues.forget_times()  # a lock that was contended a moment ago is acquired with another request
    for store in memory._stores.values():
        store.records.clear()
        store.indexes.clear()
    for maintenance in maintenance_module.maintenance_threads():
        maintenance.wake()  # it may sleep until a time of the test's manual clock


def replies_owed(client: Locks) -> int:
    """How many posted requests have a reply that isn't received yet."""
    backend: Any = client.engine.backend
    return len(backend._pool._owing())


def forget_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as if kazoo weren't installed."""
    monkeypatch.setattr(zookeeper, "INSTALLED", False)

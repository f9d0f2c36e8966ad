"""The maintenance thread of an engine, its mutexes, and its idle connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from django_redis_locks import clock, locks
from django_redis_locks.core.owners import registry
from django_redis_locks.renewal import Janitor

if TYPE_CHECKING:
    import pytest

    from django_redis_locks.client import Locks


@contextmanager
def engine_mutexes_held(client: Locks) -> Iterator[None]:
    """Meanwhile this thread is inside each table of the engine and of a memory store."""
    engine = client.engine
    with ExitStack() as stack:
        for table in (registry, engine._queues, engine._janitor):
            stack.enter_context(table._mutex)
        if hasattr(engine.backend, "_store"):
            stack.enter_context(engine.backend._store.mutex)
        yield


@contextmanager
def aliases_mutex_held() -> Iterator[None]:
    with locks._mutex:
        yield


def forget_aliases() -> None:
    """Let the next access open each alias again."""
    locks._clients.clear()


def run_in_background(client: Locks, job: Callable[[], object]) -> None:
    client.engine._janitor.put(job)


def timer_count(client: Locks) -> int:
    return len(client.engine._janitor._timers)


def call_before_each_renewal_result(patch: pytest.MonkeyPatch, wait: Callable[[], object]) -> None:
    """Let the maintenance thread call ``wait`` between the reply to a renewal and its effect."""
    note = Janitor._renewed

    def late(self: Janitor, *result: Any) -> None:
        wait()
        note(self, *result)

    patch.setattr(Janitor, "_renewed", late)


def add_idle_connections(client: Locks, number: int) -> None:
    wire = client.engine.backend._wire
    for line in [wire._connect() for _ in range(number)]:
        wire.push(line, clock.now())


def idle_connection_count(client: Locks) -> int:
    return len(client.engine.backend._wire._idle)

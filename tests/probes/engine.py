"""Internals of the engine: local waiters, sent commands, lost replies, events, renewals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pytest
from django.utils.module_loading import import_string

from django_redis_locks import Grant, Lock, LockBackendError, Record, RecordRef, lock_listing, locks
from django_redis_locks.backends.base import Backend
from django_redis_locks.backends.memory import store as memory_store
from django_redis_locks.backends.redis import sync_connections
from django_redis_locks.backends.redis.backend import PreparedRequest
from django_redis_locks.conf import DEFAULTS
from django_redis_locks.core import events
from django_redis_locks.core.commands import Command
from django_redis_locks.core.events import BackendFailed, Event, ForceReleased, Lost, Released
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.prepared import PreparedCommand
from django_redis_locks.core.queue_values import Waiter
from django_redis_locks.core.runner import run
from django_redis_locks.core.tuning import RESERVED_FENCES
from django_redis_locks.engine.engine import Engine
from django_redis_locks.engine.local_queues import LocalQueues
from django_redis_locks.primitives.shared import index as index_module
from django_redis_locks.primitives.shared.index import entries
from django_redis_locks.primitives.shared.record_values import queued_index
from django_redis_locks.primitives.shared.retry import retry_command

__all__ = ["RESERVED_FENCES", "BackendFailed", "Event", "ForceReleased", "Lost", "Released"]


class Waitable(Protocol):
    """A lock, a record or a load."""

    @property
    def lock_id(self) -> LockId: ...


def engine() -> Engine:
    """The engine of the default alias."""
    return locks["default"].engine


def waiters(lock: Waitable) -> set[Waiter]:
    """The callers of this process that wait for a lock."""
    by_loop = engine()._queues._queues.get(lock.lock_id, {})
    return {waiter for queue in list(by_loop.values()) for waiter in list(queue.waiters)}


def all_registered(lock: Waitable) -> bool:
    """Whether every local queue of a lock is registered in the store and has answered all wake-ups."""
    by_loop = engine()._queues._queues.get(lock.lock_id, {})
    return all(queue.wakeups_answered == queue.wakeups and queue.enqueued_at for queue in list(by_loop.values()))


def strike_head(lock: Waitable, error: BaseException) -> None:
    """Raise an error in the first waiter's sleep."""
    (queue,) = engine()._queues._queues[lock.lock_id].values()
    event = queue.waiters[0].event

    def strike(*_: object) -> None:
        raise error

    event.wait = event.take = strike  # it sleeps by itself, or reads messages until the event is set
    event.set()  # the waiter checks whether it is its turn, and sleeps again


def forget_contention() -> None:
    """Treat every lock as uncontended: the next acquire doesn't register, and reserves no fences."""
    queues = engine()._queues
    with queues._mutex:
        queues._contended_until.clear()


def ignore_wake_ups(patch: pytest.MonkeyPatch) -> None:
    """Drop each wake-up from the store."""
    patch.setattr(LocalQueues, "wake", lambda *_: True)


def restart_renewal(grant: Grant) -> None:
    """Schedule the next renewal of a grant by the present tuning."""
    maintenance = engine()._maintenance
    entry = maintenance._schedule._new.get(id(grant.hold)) or maintenance._schedule._known[id(grant.hold)]
    maintenance.watch(grant.hold, entry.make_command, entry.lease)


def index_entries(record: RecordRef) -> dict[str, float]:
    """The indexes that list a record, each with the seconds until the end of its lease."""
    found = {}
    for name, index in ("held", record.keys.index_key), ("queued", queued_index(record.keys.index_key)):
        for which in ("held", "ended"):
            page = run(entries(index, which, 0, 100), engine())
            ends = dict(page.found)
            if record.keys.lock in ends:
                found[name] = ends[record.keys.lock] - page.at
    return found


def forget_ended_entries(patch: pytest.MonkeyPatch) -> None:
    """Let the memory store keep an ended lease in the index no longer than a write takes."""
    patch.setattr(memory_store, "INDEX_RETENTION", 0)


def supported_features(entry: dict[str, Any]) -> frozenset[str]:
    """What the backend of an entry of ``REDIS_LOCKS`` supports."""
    backend: type[Backend] = import_string(entry.get("BACKEND", DEFAULTS["BACKEND"]))
    return backend.supports


def hold_of(record: Record) -> object:
    """The hold that is renewed for a record."""
    return record._hold


def route_prepared_commands(patch: pytest.MonkeyPatch) -> None:
    """Have the engine's handlers execute prepared commands, as they execute all others."""
    handlers, ahandlers = engine().handlers, engine().ahandlers

    def send(prepared: Any, first: str, rest: Any = None, *, messages_first: bool = False) -> Any:
        try:
            return handlers[Command](prepared._as_command(first, prepared.packed() if rest is None else rest))
        except LockBackendError as failure:
            return failure

    async def asend(prepared: Any, first: str, rest: Any = None) -> Any:
        try:
            return await ahandlers[Command](prepared._as_command(first, prepared.packed() if rest is None else rest))
        except LockBackendError as failure:
            return failure

    for kind in PreparedCommand, PreparedRequest:
        patch.setattr(kind, "send", send)
        patch.setattr(kind, "asend", asend)
    patch.setattr(PreparedRequest, "post", PreparedCommand.post)


@contextmanager
def sent_commands() -> Iterator[list[str]]:
    """The names of the commands that callers send inside the block, without those of the maintenance thread."""
    handlers, ahandlers = engine().handlers, engine().ahandlers
    names: list[str] = []
    call, acall = handlers[Command], ahandlers[Command]

    def count(command: Command[Any]) -> Any:
        names.append(command.name)
        return call(command)

    def acount(command: Command[Any]) -> Any:
        names.append(command.name)
        return acall(command)

    with pytest.MonkeyPatch.context() as patch:
        route_prepared_commands(patch)
        patch.setitem(handlers, Command, count)
        patch.setitem(ahandlers, Command, acount)
        yield names


@contextmanager
def lost_replies() -> Iterator[None]:
    """Lose the reply to each command of a caller inside the block. The maintenance thread gets its replies."""
    handlers, ahandlers = engine().handlers, engine().ahandlers
    call, acall = handlers[Command], ahandlers[Command]

    def lose(command: Command[Any]) -> Any:
        call(command)
        raise _no_answer()

    async def alose(command: Command[Any]) -> Any:
        await acall(command)
        raise _no_answer()

    with pytest.MonkeyPatch.context() as patch:
        route_prepared_commands(patch)
        patch.setitem(handlers, Command, lose)
        patch.setitem(ahandlers, Command, alose)
        yield


@contextmanager
def hold_back_replies(carried_out: Callable[[], object]) -> Iterator[None]:
    """Call ``carried_out`` after the execution of a task's command, whose reply never arrives."""
    backend = engine().backend
    acall = backend.acall

    async def lose_reply(command: Command[Any]) -> Any:
        await acall(command)
        carried_out()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        route_prepared_commands(patch)
        patch.setattr(backend, "acall", lose_reply)
        yield


def lose_one_reply(patch: pytest.MonkeyPatch, name: str) -> None:
    """Lose the reply to the next command of this name, from any sender."""
    backend = engine().backend
    call, acall = backend.call, backend.acall
    lost: list[str] = []

    def lose(command: Command[Any], reply: Any) -> Any:
        if command.name == name and not lost:
            lost.append(name)
            raise _no_answer()
        return reply

    async def alose(command: Command[Any]) -> Any:
        return lose(command, await acall(command))

    route_prepared_commands(patch)
    patch.setattr(backend, "call", lambda command: lose(command, call(command)))
    patch.setattr(backend, "acall", alose)


def delay_one_command(patch: pytest.MonkeyPatch, alias: str, delay: Callable[[], object]) -> None:
    """Call ``delay`` when the next command of an alias is sent."""
    backend = locks[alias].engine.backend
    call, acall = backend.call, backend.acall
    pending = [delay]

    async def adelayed(command: Command[Any]) -> Any:
        if pending:
            pending.pop()()
        return await acall(command)

    def delayed(command: Command[Any]) -> Any:
        if pending:
            pending.pop()()
        return call(command)

    patch.setattr(backend, "call", delayed)
    patch.setattr(backend, "acall", adelayed)


def _no_answer() -> LockBackendError:
    return LockBackendError("no answer", outcome_unknown=True, transient=True)


def store_late_copy(lock: Lock, token: str, fence: int) -> bool:
    """Send a renewal that stores the holder, as a late copy does. Returns whether the token holds the lock."""
    command = lock.spec.steps._adopt(token, 1, fence=fence, since=0.0, holder='["elsewhere"]')
    ours: bool = command.read(engine().backend.call(command))
    return ours


def set_page_size(patch: pytest.MonkeyPatch, *, entries: int, looks: int) -> None:
    """How many entries of the index, and how many locks, one command reads."""
    patch.setattr(index_module, "PAGE_SIZE", entries)
    patch.setattr(index_module, "INSPECT_BATCH", looks)


def set_most_listed(patch: pytest.MonkeyPatch, most: int) -> None:
    """How many locks of an alias are searched and sorted."""
    patch.setattr(lock_listing, "MOST", most)


def run_between_index_reads(patch: pytest.MonkeyPatch, count: int, action: Callable[[], object]) -> None:
    """Read the indexes one by one, and run the action once this number of them is read."""
    reads: list[object] = []

    def one_by_one(commands: Sequence[Command[Any]], unreachable: object = None) -> Any:
        values = []
        for command in commands:
            values.append((yield from retry_command(command))[0])
            reads.append(command)
            if len(reads) == count:
                action()
        return values

    patch.setattr(index_module, "retry_commands", one_by_one)


def set_reply_timeout(patch: pytest.MonkeyPatch, seconds: Callable[[], float]) -> None:
    """Set the timeout of blocking connections for each reply."""
    wait = sync_connections.keep_receiving

    def patient(connection: sync_connections.PooledConnection, since: float) -> bytes:
        connection.timeout = seconds()
        return wait(connection, since)

    patch.setattr(sync_connections, "keep_receiving", patient)


def wait_for_cleanup(lock: Lock) -> None:
    """Wait until the maintenance thread has carried out, or tried, the cleanup after the calls that have ended."""
    performer: Any = lock.performer
    performer._maintenance.wait_until_idle(1.0)


def record_events(patch: pytest.MonkeyPatch, wanted: Callable[[Event], bool]) -> list[Event]:
    """Record the wanted events from now on, in order."""
    log: list[Event] = []

    def note(event: Event) -> None:
        if wanted(event):
            log.append(event)

    patch.setattr(events, "listeners", [*events.listeners, note])
    return log


@contextmanager
def event_listener(listener: Callable[[Event], object]) -> Iterator[None]:
    events.listen(listener)
    try:
        yield
    finally:
        events.listeners.remove(listener)


def report_losses() -> None:
    """Wait until each detected loss was reported to receivers and log handlers."""
    for alias in locks:
        locks[alias].engine.wait_until_idle(10)

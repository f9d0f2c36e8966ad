"""Executes the effects of programs on one backend. Engines of one store share its local wait queues."""

from __future__ import annotations

import asyncio
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from ..conf.schema import SETTING, InvalidLockBackend
from ..core import clock, forks
from ..core.commands import PARSE_ERRORS, Command, Effect
from ..core.effects import (
    Cleanup,
    HandOver,
    LeaveQueue,
    NotifyWaiters,
    ReportUnreachable,
    Requeue,
    SendCommands,
    Sleep,
    Subscribe,
    Wait,
)
from ..core.errors import LockBackendError
from ..core.keys import CONFIRM, LockId, ends_of, inbox_of, waiters_of
from ..core.owners import running_loop
from ..core.registry import registry
from ..core.replies import parse_freed
from ..core.steps.locks import UnexpectedGrant, UnregisterWaiter
from ..core.steps.permits import UnregisterPermits
from ..core.tuning import DEFAULT
from ..core.wait_events import TaskEvent, ThreadEvent
from .local_queues import LocalQueues
from .maintenance import MaintenanceThread
from .outages import Unshared, outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.base import Backend
    from ..core.queue_values import HandedOverLock
    from ..core.tuning import Tuning

R = TypeVar("R")

ALWAYS_SENT: Final = frozenset({"load/block", "load/clear", "load/put", "load/unblock"})
"""The commands of cache writers. They are sent even while the server of locks counts as down, because the cache's own
server may be up."""


class Engine:
    """Executes the effects of programs on one backend."""

    def __init__(self, backend: Backend, tuning: Tuning = DEFAULT) -> None:
        self.backend = backend
        self.tuning = tuning = backend.tuned(tuning)
        queues = self._queues = _queues.setdefault(backend.identity, LocalQueues())
        notify_waiters = partial(queues.notify_waiters, engine=self)
        self.outage = outage_of(backend.node) if backend.fails_as_one else Unshared()
        maintenance = self._maintenance = MaintenanceThread(backend, notify_waiters, self._open_subscriber, self)
        self._subscriber = backend.subscriber(self)
        self.subscribed_channel = self._subscriber.channel_name
        self.wait_for_message = self._subscriber.wait
        self.prepare = backend.prepare
        self.queued = queues.queued
        self.uncontended = queues.uncontended
        self.end_uncontended = queues.end_uncontended
        self.renewed = maintenance.renewed
        self.call_at = maintenance.call_at
        self.submit = maintenance.submit
        self.submit_notice = maintenance.notices.submit
        self.submit_notice_first = maintenance.notices.submit_first
        self.watch = maintenance.watch
        self.unwatch = maintenance.unwatch
        self.forget_at_end = maintenance.forget_at_end
        self.handlers: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            Command: self._call,
            SendCommands: self._send_commands,
            Wait: partial(queues.wait, engine=self),
            LeaveQueue: partial(queues.leave, engine=self),
            Subscribe: self._subscribe,
            HandOver: queues.hand_over,
            Requeue: partial(queues.requeue, engine=self),
            NotifyWaiters: notify_waiters,
            Cleanup: maintenance.clean_up,
            ReportUnreachable: self._report_unreachable,
            Sleep: lambda effect: clock.sleep(effect.seconds),
        }
        self.ahandlers: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            Command: self._acall,
            SendCommands: self._asend_commands,
            Wait: partial(queues.async_wait, engine=self),
            Subscribe: self._asubscribe,
            Sleep: lambda effect: self._task_event().wait(effect.seconds),
        }
        forks.reset_in_child(self)
        _engines.add(self)

    def close(self) -> None:
        """Close idle connections, and the subscriber."""
        self._subscriber.close()
        self.backend.close()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until the maintenance thread has done all pending work, for at most ``seconds``. A barrier for tests."""
        self._maintenance.wait_until_idle(seconds)
        self._maintenance.notices.wait_until_idle(seconds)

    def _call(self, command: Command[R]) -> R:
        if running_loop() is not None:
            self.may_block()
        outage = self.outage
        if outage.suspected and command.name not in ALWAYS_SENT:
            outage.check()
        reply = self.backend.call(command)
        if outage.suspected:
            outage.record_reply()
        try:
            return command.parse(reply)
        except PARSE_ERRORS:
            return command.read(reply)

    async def _acall(self, command: Command[R]) -> R:
        outage = self.outage
        if outage.suspected and command.name not in ALWAYS_SENT:
            outage.check()
        reply = await self.backend.acall(command)
        if outage.suspected:
            outage.record_reply()
        return command.read(reply)

    def _send_commands(self, effect: SendCommands) -> list[Any]:
        self.may_block()
        replies = self.call_many(effect.commands)
        return [_read(command, reply) for command, reply in zip(effect.commands, replies, strict=True)]

    async def _asend_commands(self, effect: SendCommands) -> list[Any]:
        return await asyncio.gather(*map(self._acall, effect.commands), return_exceptions=True)

    def call_many(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Send commands in one write. Return the raw reply to each, or its ``LockBackendError``."""
        outage = self.outage
        if outage.suspected:
            try:
                outage.check()
            except LockBackendError as failure:
                return [failure] * len(commands)
        return self.backend.call_many(commands, self.tuning.socket_timeout)

    def _report_unreachable(self, effect: ReportUnreachable) -> float:
        return self.outage.record_failure(effect.sent, effect.failure, effect.give_up_after, self.backend.probe, self)

    def _subscribe(self, effect: Subscribe) -> bool:
        opened = ThreadEvent()
        self._subscriber.open(effect.channel, opened.set)
        opened.wait(effect.seconds)
        return bool(self.subscribed_channel(effect.channel))

    async def _asubscribe(self, effect: Subscribe) -> bool:
        opened = self._task_event()
        self._subscriber.open(effect.channel, opened.set)
        await opened.wait(effect.seconds)
        return bool(self.subscribed_channel(effect.channel))

    def listen_for(self, lock_id: LockId) -> None:
        """Open the inbox for messages about a lock of this process, without waiting for it."""
        self._open_subscriber(inbox_of(lock_id.lock))

    def _open_subscriber(self, channel: str) -> None:
        if not self.subscribed_channel(channel):
            self._subscriber.open(channel, _do_nothing)

    def _task_event(self) -> TaskEvent:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - called from coroutines only
        return TaskEvent(loop, self.call_at)

    # Called by the subscriber

    def on_message(self, word: str, lock: str) -> None:
        """Handle a message: a request to confirm holds; a lock that was granted to a queue; or a wake-up. A grant or a
        wake-up goes to the next waiter in the store if none is left here."""
        lock_id = LockId(self.backend.identity, lock)
        number, *grant = word.split(",")
        if number == CONFIRM:
            self._queues.doubt_grants(lock_id)
            self._maintenance.confirm(lock_id)
        elif grant:
            token, fence = grant
            self._queues.receive(lock_id, number, token, int(fence), self)
        elif not self._queues.wake(lock_id, number):
            self._send_unregister(lock_id, (), "")  # the store wakes the next waiter

    def on_reconnect(self) -> None:
        """Have all waiters send a request: messages may have been lost."""
        self._queues.wake_all()

    def expects_messages(self) -> bool:
        """Return whether this process waits for a lock of this store or holds one, so that messages concern it."""
        store = self.backend.identity
        return (
            len(self._queues) > 0
            or self._maintenance.renews
            or any(grant.hold.live and grant.hold.lock_id.store == store for grant in registry.grants())
        )

    def may_block(self) -> None:
        """Check that this thread may block.

        Raises:
            SynchronousOnlyOperation: this thread runs an event loop, which must not be blocked.
        """
        if running_loop() is not None and not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
            raise SynchronousOnlyOperation(
                "You cannot call this from an async context - use the asynchronous method "
                "(acquire: aacquire, with: async with), or a thread or sync_to_async."
            )

    def require(self, feature: str, alias: str) -> None:
        """Check that the store has a feature, before an object that needs it is made.

        Args:
            feature: a word of ``FEATURES``.
            alias: the alias in ``REDIS_LOCKS``, for the message.

        Raises:
            InvalidLockBackend: it hasn't.
        """
        why = self.backend.why_unsupported(feature)
        if why is not None:
            raise InvalidLockBackend(f"{SETTING}[{alias!r}]: {why}.")

    def free_handed_over(self, handed: HandedOverLock) -> None:
        """Free a lock that was handed over to a queue without a waiter."""
        hold = handed.hold
        delete = handed.make_release_command(hold.token)
        self._maintenance.clean_up(Cleanup(hold.lock_id, delete, hold.lease / 1000))

    def unregister(self, lock_id: LockId, keys: tuple[str, ...], address: str) -> None:
        """Remove an address from the store's wait queue in the background, and free the lock if it was granted to the
        token of the address. The next waiter is then granted the lock, or, without ``keys``, only woken."""
        self._send_unregister(lock_id, keys, address)

    def return_grant(self, lock_id: LockId, keys: tuple[str, ...], token: str, fence: int) -> None:
        """Free in the background a lock that was granted to a token, unless a request has claimed it. The next waiter is
        then granted the lock, or, without ``keys``, only woken."""
        self._send_unregister(lock_id, keys, "", UnexpectedGrant(token, fence))

    def _send_unregister(
        self, lock_id: LockId, keys: tuple[str, ...], address: str, grant: UnexpectedGrant | None = None
    ) -> None:
        self._maintenance.send(_unregister_command(lock_id, keys, address, grant), lock_id)

    def withdraw_waiters(self) -> list[Command[int]]:
        """Return the commands that unregister the waiters of this process, which must not be granted a lock any more
        because the process exits."""
        return [_unregister_command(*withdrawn) for withdrawn in self._queues.withdraw_entries()]

    def after_fork_in_child(self) -> None:
        """Forget what belongs to the parent: its threads, connections, waiters and holds."""
        self.backend.after_fork_in_child()
        self._subscriber.after_fork_in_child()
        self._queues.clear()
        self._maintenance.after_fork_in_child()


def _unregister_command(
    lock_id: LockId, keys: tuple[str, ...], address: str, grant: UnexpectedGrant | None = None
) -> Command[int]:
    keys = keys or (lock_id.lock, waiters_of(lock_id.lock))
    if ends_of(lock_id.lock) in keys:
        return Command("permits/unregister", keys, UnregisterPermits(address, grant), parse_freed)
    return Command("waiters/unregister", keys, UnregisterWaiter(address, grant), parse_freed)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def engines() -> list[Engine]:
    """Return the engines of this process, one for each store."""
    return list({engine.backend.identity: engine for engine in list(_engines)}.values())


def _read(command: Command[Any], reply: Any) -> Any:
    if isinstance(reply, LockBackendError):
        return reply
    try:
        return command.read(reply)
    except LockBackendError as error:
        return error


def _do_nothing() -> None:
    """Nothing waits until the subscriber is open."""


_queues: dict[str, LocalQueues] = {}
"""The local queues by the identity of the store: two aliases of one server share them."""


@clock.on_install
def _forget_times() -> None:
    for queues in list(_queues.values()):
        queues.forget_times()

"""Releases and extends the grants of a lock, and undoes a release that failed."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import clock, events, owners
from ...core.commands import Effect
from ...core.effects import Cleanup, NotifyWaiters
from ...core.errors import LockError, LockLost
from ...core.hold import Hold, State
from ...core.registry import forget_block, registry
from ...core.runner import arun, run, run_twice_if_interrupted
from .lock_programs import LockPrograms
from .retry import FirstReply

if TYPE_CHECKING:
    from ...core.grant import Grant
    from ...core.prepared import PreparedCommand


_FREED = (1, 2)
"""The replies to a release that has freed the lock, or granted it to a waiter."""


class LockOwnership(LockPrograms):
    """Gives grants back. Whatever exception strikes, and wherever, nothing stays locked."""

    __slots__ = ()

    def release_grant(self, grant: Grant) -> None:
        """Release a grant; the last one on a hold frees the lock in the store."""
        if not self._end_grant(grant):
            return
        hold, loop, first = grant.hold, owners.running_loop(), None
        command = self._begin_fast_release(hold) if loop is None else None
        if command is not None:
            first = self._end_fast_release(hold, clock.now(), command.send(hold.token))
        self._report_released(grant, hold.state is State.GONE or run(self.releasing(hold, loop, first), self.performer))
        if self.options.after_release is not None and not grant.deferred:
            self.options.after_release(self.name)

    async def arelease_grant(self, grant: Grant) -> None:
        """Release a grant, in a running event loop; the last one on a hold frees the lock in the store."""
        if not self._end_grant(grant):
            return
        hold, loop, first = grant.hold, owners.running_loop(), None
        command = self._begin_fast_release(hold)
        if command is not None:
            first = self._end_fast_release(hold, clock.now(), await command.asend(hold.token))
        self._report_released(
            grant, hold.state is State.GONE or await arun(self.releasing(hold, loop, first), self.performer)
        )

    def _end_grant(self, grant: Grant) -> bool:
        """Take the grant back; True if that was the last one, so that the lock is to be freed in the store."""
        hold = grant.hold
        if hold.pid != os.getpid():
            if not grant.released:
                hold.open_grants.discard(grant.id)
                registry.forget(grant)
                warnings.warn(
                    f"lock {self.name!r} belongs to the process that this one was forked from; it isn't released here",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return False
        if hold.release_grant(grant.id):
            return True
        registry.forget(grant)
        return False

    def _begin_fast_release(self, hold: Hold) -> PreparedCommand | None:
        """Return the command of a release that is likely to take one request, because the lock is certainly held and
        no caller of this process waits for it; or None."""
        performer = self.performer
        if (
            hold.outcome_unknown
            or hold.release_sent_in_time
            or hold.loss_reason is not None
            or performer.queued(self.lock_id)
            or performer.outage.suspected
            or clock.now() >= hold.deadline
        ):
            return None
        if hold.watched:
            performer.unwatch(hold)
        hold.release_sent_in_time = True
        return (self.prepared or self.prepare_commands()).release

    def _end_fast_release(self, hold: Hold, sent: float, reply: Any) -> FirstReply | None:
        """End the hold if the lock was freed. Otherwise return the reply, with which the program continues; also if
        callers of this process have begun to wait."""
        if reply not in _FREED or hold.loss_reason is not None or self.performer.queued(self.lock_id):
            return FirstReply(sent, reply)
        if reply == 2:
            self._perform(NotifyWaiters(self.lock_id, passed_on=True))
        hold.state = State.GONE
        return None

    def _report_released(self, grant: Grant, confirmed: bool) -> None:
        registry.forget(grant)
        if events.wanted(events.Released):
            hold = grant.hold
            events.emit(events.Released(self.key, self.name, self.alias, hold.fence, hold.age(), confirmed))

    def check_block(self) -> None:
        """
        Raises:
            TypeError: a block would release a lock that has ``auto_release=False``.
        """
        if not self.options.auto_release:
            raise TypeError(
                f"lock {self.name!r}: a block releases at its end, and auto_release=False keeps the lock until its lease "
                "ends: write acquire(), or leave auto_release out"
            )

    def clean_up_release(self, grant: Grant, failure: BaseException) -> None:
        """Have the maintenance thread end a release that an exception has interrupted."""
        hold = grant.hold
        if hold.inherited_by_fork:  # the warning was made an error
            return
        failed = isinstance(failure, LockError) and not isinstance(failure, LockLost)  # it may be tried again
        if not isinstance(failure, LockError):
            hold.release_grant(grant.id)
        if not failed or hold.state is not State.RELEASING:
            registry.forget(grant)
        if hold.state is State.RELEASING and not hold.release_failed:
            hold.release_sent_in_time = hold.release_sent_in_time or clock.now() < hold.deadline
            hold.release_failed = True
            run_twice_if_interrupted(partial(self._release_later, hold))

    def release_in_background(self, grant: Grant) -> None:
        """Release a grant without waiting for the store. The maintenance thread frees the lock, and ``Released`` is
        emitted when it has."""
        hold = grant.hold
        if not hold.release_grant(grant.id):
            registry.forget(grant)
            return
        command = self._release_command(hold.token)

        def parse(reply: Any) -> int:
            count = command.parse(reply)
            if hold.state is State.RELEASING:  # the first of several answers
                hold.state = State.GONE
                registry.forget(grant)
                if hold.loss_reason is None:
                    self._report_released(grant, bool(count))
            return count

        self._perform(Cleanup(hold.lock_id, replace(command, parse=parse), self.options.lease / 1000))

    def detach_grant(self, grant: Grant) -> None:
        """Forget a grant, and leave the lock until its lease ends.

        Args:
            grant: a grant of this lock.

        Raises:
            LockError: the short lease with which the store granted the lock couldn't be extended.
        """
        try:
            if grant.hold.unconfirmed:
                self.extend_hold(grant.hold, grant.hold.lease_left())
        finally:
            self._forget_detached(grant)

    async def adetach_grant(self, grant: Grant) -> None:
        """Forget a grant, and leave the lock until its lease ends; in a running event loop.

        Args:
            grant: a grant of this lock.

        Raises:
            LockError: the short lease with which the store granted the lock couldn't be extended.
        """
        try:
            if grant.hold.unconfirmed:
                await self.aextend_hold(grant.hold, grant.hold.lease_left())
        finally:
            self._forget_detached(grant)

    def _forget_detached(self, grant: Grant) -> None:
        grant.hold.detach(grant.id)
        registry.forget(grant)

    def _release_later(self, hold: Hold) -> None:
        self.performer.unwatch(hold)
        # it may have been freed already: local waiters ask the store, and cleanup repeats the release
        self._perform(self._cleanup(hold.token, hold.address))
        self._perform(NotifyWaiters(self.lock_id, False, hold.entry, self._release_keys))
        hold.entry = None

    def _undo_block(self, grant: Grant | None, failure: BaseException) -> None:
        if not isinstance(failure, LockError):
            grant = grant or registry.grant_of_with_block(self.lock_id, self, 1)
            if grant is not None:
                forget_block(grant)
                self.clean_up_release(grant, failure)

    def extend_hold(self, hold: Hold, lease: int) -> None:
        """Let the lease of a hold end ``lease`` milliseconds from now, or later if it did anyway."""
        run(self.extending(hold, lease), self.performer)

    async def aextend_hold(self, hold: Hold, lease: int) -> None:
        """Let the lease of a hold end ``lease`` milliseconds from now, or later if it did anyway; in a running event
        loop."""
        await arun(self.extending(hold, lease), self.performer)

    def _perform(self, effect: Effect[None]) -> None:
        self.performer.handlers[type(effect)](effect)

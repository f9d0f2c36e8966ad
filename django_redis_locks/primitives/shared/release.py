"""Give a grant back: the straight release, its program, and its completion in the background. Whatever exception strikes,
and wherever, nothing stays locked."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any

from ...core import clock, events
from ...core.effects import Cleanup, HandOver, NotifyWaiters, Requeue
from ...core.errors import LockBackendError, LockError, LockLost, LockNotOwned
from ...core.hold import Hold, State
from ...core.owners import running_loop
from ...core.queue_values import HandedOverLock
from ...core.registry import forget_block, registry
from ...core.runner import arun, run, run_twice_if_interrupted
from .extend import aextend_grant, extend_grant
from .retry import FirstReply, retry_command

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.grant import Grant
    from ...core.prepared import PreparedCommand
    from .lock_spec import LockSpec, SpecifiedLock


_FREED = (1, 2)
"""The replies to a release that has freed the lock, or granted it to a waiter."""


def release_grant(lock: SpecifiedLock, grant: Grant, loop: object) -> None:
    """Release a grant; the last one on a hold frees the lock in the store."""
    spec, hold, first = lock.spec, grant.hold, None
    if hold.pid != getpid():
        _forget_in_child(spec, grant)
        return
    if not hold.release_grant(grant.id):
        registry.forget(grant)
        return
    command = begin_straight(spec, hold) if loop is None else None
    if command is not None:
        sent = clock.now()
        reply = command.send(hold.token, messages_first=hold.contended)
        first = end_straight(spec, grant, sent, reply)
    if command is None or first is not None:
        confirmed = hold.state is State.GONE or run(releasing(spec, hold, loop, first), spec.performer)
        report_released(spec, grant, confirmed)
    if spec.options.after_release is not None and not grant.deferred:
        spec.options.after_release(spec.name)


async def arelease_grant(lock: SpecifiedLock, grant: Grant) -> None:
    """Release a grant, in a running event loop; the last one on a hold frees the lock in the store."""
    spec, hold, first = lock.spec, grant.hold, None
    if hold.pid != getpid():
        _forget_in_child(spec, grant)
        return
    if not hold.release_grant(grant.id):
        registry.forget(grant)
        return
    command = begin_straight(spec, hold)
    if command is not None:
        first = end_straight(spec, grant, clock.now(), await command.asend(hold.token))
    if command is None or first is not None:
        loop = running_loop()
        confirmed = hold.state is State.GONE or await arun(releasing(spec, hold, loop, first), spec.performer)
        report_released(spec, grant, confirmed)


def _forget_in_child(spec: LockSpec, grant: Grant) -> None:
    """Forget a grant that belongs to the parent of this process."""
    if not grant.released:
        grant.hold.open_grants.discard(grant.id)
        registry.forget(grant)
        warnings.warn(
            f"lock {spec.name!r} belongs to the process that this one was forked from; it isn't released here",
            RuntimeWarning,
            stacklevel=4,
        )


def begin_straight(spec: LockSpec, hold: Hold) -> PreparedCommand | None:
    """Return the command of a release that is likely to take one request, because the lock is certainly held and
    no caller of this process waits for it; or None."""
    performer = spec.performer
    if (
        hold.outcome_unknown
        or hold.release_sent_in_time
        or hold.loss_reason is not None
        or spec.lock_id in performer.queued
        or performer.outage.suspected
        or clock.now() >= hold.deadline
    ):
        return None
    if hold.watched:
        performer.unwatch(hold)
    hold.release_sent_in_time = True
    return (spec.steps.prepared or spec.steps.prepare()).release


def end_straight(spec: LockSpec, grant: Grant, sent: float, reply: Any) -> FirstReply | None:
    """End the hold if the lock was freed. Otherwise return the reply, with which the program continues; also if
    callers of this process have begun to wait."""
    hold = grant.hold
    if reply not in _FREED or hold.loss_reason is not None or spec.lock_id in spec.performer.queued:
        return FirstReply(sent, reply)
    if reply == 2:
        spec.perform(NotifyWaiters(spec.lock_id, passed_on=True))
    hold.state = State.GONE
    registry.forget(grant)
    if events.listeners or events.release_log.isEnabledFor(events.Released.level):
        report_released(spec, grant, confirmed=True)
    return None


def report_released(spec: LockSpec, grant: Grant, confirmed: bool) -> None:
    """Forget a grant after its release, and report that."""
    registry.forget(grant)
    hold = grant.hold
    events.emit(events.Released(spec.key, spec.name, spec.alias, hold.fence, hold.age(), confirmed))


# The program


def releasing(spec: LockSpec, hold: Hold, loop: object, first: FirstReply | None = None) -> Program[bool]:
    """Free the lock if it is still this hold's. Returns whether the store confirmed it. ``first`` is the reply to a
    command that was sent before.

    If others wait for it in this process it is handed over to them, and the store isn't asked. If an earlier
    attempt got no reply, "not held" may mean that it succeeded.
    """
    before, in_time = False, True
    if first is None:
        if hold.watched:
            spec.performer.unwatch(hold)
        handing_over = spec.steps.shares_line and spec.lock_id in spec.performer.queued
        if handing_over and (yield from _handing_over(spec, hold, loop)):
            return True
        before, in_time = hold.release_sent_in_time, clock.now() < hold.deadline
        hold.release_sent_in_time = before or in_time
    try:
        reply, _, outcome_unknown = yield from retry_command(
            spec.steps.release(hold.token, "" if hold.entry is None else hold.entry.address),
            hold.deadline,
            spec.options.call_limits,
            tuning=spec.performer.tuning,
            first=first,
        )
    except LockBackendError as failure:
        spec.with_context(failure)
        if hold.expired_or_lost:
            raise spec.loss_of(hold, "expired") from failure
        raise
    if reply > 1 or hold.entry is not None or spec.lock_id in spec.performer.queued:
        yield NotifyWaiters(spec.lock_id, reply > 1, hold.entry, spec.steps.release_keys)
    yield from _cleaning_up(spec, hold, outcome_unknown)
    hold.state = State.GONE  # not before: what is interrupted until here the caller does again
    if reply and hold.loss_reason is None:  # a reported loss excludes a report of success
        return True
    if hold.loss_reason is None and (before or (in_time and outcome_unknown)):
        return False
    raise spec.loss_of(hold, "taken" if in_time else "expired")


def _cleaning_up(spec: LockSpec, hold: Hold, outcome_unknown: bool) -> Program[None]:
    """Delete what requests without a reply may have left, also an attempt to detach the hold."""
    if hold.outcome_unknown or outcome_unknown:
        yield spec.cleanup(hold.token, hold.address)
    if hold.detached_token:
        yield spec.cleanup(hold.detached_token, "")


def _handing_over(spec: LockSpec, hold: Hold, loop: object) -> Program[bool]:
    """Hand the lock over to a waiter of this process, if it is certainly held. After ``max_hand_overs`` times in a
    row the local queue registers behind those of other processes instead."""
    if hold.outcome_unknown or hold.release_failed or hold.loss_reason is not None or clock.now() >= hold.deadline:
        return False
    if hold.hand_overs >= spec.performer.tuning.max_hand_overs:
        hold.entry = yield Requeue(spec.lock_id, loop)
    else:
        handed: bool = yield HandOver(HandedOverLock(hold, spec.steps.release), loop)
        return handed
    return False


# In the background


def clean_up_release(lock: SpecifiedLock, grant: Grant, failure: BaseException) -> None:
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
        run_twice_if_interrupted(partial(_release_later, lock.spec, hold))


def _release_later(spec: LockSpec, hold: Hold) -> None:
    spec.performer.unwatch(hold)
    # it may have been freed already: local waiters ask the store, and cleanup repeats the release
    spec.perform(spec.cleanup(hold.token, hold.address))
    if hold.detached_token:
        spec.perform(spec.cleanup(hold.detached_token, ""))
    spec.perform(NotifyWaiters(spec.lock_id, False, hold.entry, spec.steps.release_keys))
    hold.entry = None


def clean_up_block(lock: SpecifiedLock, grant: Grant | None, failure: BaseException) -> None:
    """Have the maintenance thread end the release at the end of a block that an exception has interrupted."""
    if not isinstance(failure, LockError):
        grant = grant or registry.grant_of_with_block(lock.spec.lock_id, lock, 1)
        if grant is not None:
            forget_block(grant)
            lock.clean_up_release(grant, failure)


def release_in_background(lock: SpecifiedLock, grant: Grant) -> None:
    """Release a grant without waiting for the store. The maintenance thread frees the lock, and ``Released`` is
    emitted when it has."""
    spec, hold = lock.spec, grant.hold
    if not hold.release_grant(grant.id):
        registry.forget(grant)
        return
    command = spec.steps.release(hold.token)

    def parse(reply: Any) -> int:
        count = command.parse(reply)
        if hold.state is State.RELEASING:  # the first of several answers
            hold.state = State.GONE
            registry.forget(grant)
            if hold.loss_reason is None:
                report_released(spec, grant, bool(count))
        return count

    spec.perform(Cleanup(hold.lock_id, replace(command, parse=parse), spec.options.lease / 1000))


# Without a release


def leave_grant(lock: SpecifiedLock, grant: Grant) -> None:
    """Forget a grant, and leave the lock until its lease ends.

    Args:
        lock: the lock.
        grant: a grant of this lock.

    Raises:
        LockError: the short lease with which the store granted the lock couldn't be extended.
    """
    try:
        if grant.hold.unconfirmed:
            extend_grant(lock, grant, grant.hold.lease_left())
    finally:
        _forget_left(grant)


async def aleave_grant(lock: SpecifiedLock, grant: Grant) -> None:
    """Forget a grant, and leave the lock until its lease ends; in a running event loop.

    Args:
        lock: the lock.
        grant: a grant of this lock.

    Raises:
        LockError: the short lease with which the store granted the lock couldn't be extended.
    """
    try:
        if grant.hold.unconfirmed:
            await aextend_grant(lock, grant, grant.hold.lease_left())
    finally:
        _forget_left(grant)


def _forget_left(grant: Grant) -> None:
    grant.hold.leave(grant.id)
    registry.forget(grant)


# The grant that the caller means


def newest_grant(lock: SpecifiedLock) -> Grant:
    """Return the caller's newest grant of the lock, which is to be released. An exception that interrupts this has it
    released in the background.

    Raises:
        LockNotOwned: there is none.
    """
    try:
        return _required_grant(lock, registry.newest(lock.spec.lock_id, lock.spec.steps.role))
    except LockNotOwned:
        raise
    except BaseException as failure:
        grant = registry.newest(lock.spec.lock_id, lock.spec.steps.role)
        if grant is not None:
            lock.clean_up_release(grant, failure)
        raise


def grant_of_block(lock: SpecifiedLock, error: BaseException | None, block: int) -> Grant | None:
    """Return the grant that a ``with`` block began with, also if it began in another context, and that of a generator in
    another thread or task. None if it can't be found and an exception of the block's own is on its way."""
    grant = registry.grant_of_with_block(lock.spec.lock_id, lock, block)
    return grant if grant is not None or error is not None else _required_grant(lock, None)


def _required_grant(lock: SpecifiedLock, grant: Grant | None) -> Grant:
    if grant is None:
        raise LockNotOwned(
            f"lock {lock.spec.name!r} isn't held by this thread or task. "
            "What another one acquired is released by its grant: grant.release()",
            **lock.spec.error_context,
        )
    return grant

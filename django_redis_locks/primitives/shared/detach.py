"""Move a hold to another process: detach it from this one, and attach it to another one.

Each is one step in the store, which replaces the token of the lock. So a text is good for one attach, the same request
may be repeated, and a late copy of it changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ...core import clock, events, forks, owners
from ...core.detached import DetachedHold, mint_detached_token
from ...core.durations import Duration, lease_ms
from ...core.effects import Cleanup, NotifyWaiters
from ...core.errors import LockAlreadyHeld, LockBackendError, LockLost
from ...core.hold import State
from ...core.registry import forget_block, registry
from ...core.runner import arun, run, run_twice_if_interrupted
from .acquire import issue
from .acquire_program import make_hold
from .requests import AcquireRequest

if TYPE_CHECKING:
    from ...core.commands import Command, Program
    from ...core.grant import Grant
    from ...core.hold import Hold
    from .lock_spec import LockSpec, SpecifiedLock


# Detach


def detach_grant(lock: SpecifiedLock, grant: Grant, expire: Duration | None) -> str:
    """End the hold of a grant here, and return the text with which another process attaches it. Arguments and
    exceptions as of ``Grant.detach``."""
    lease, attempt = _check(lock.spec, grant, expire), object()
    try:
        return run(_detaching(lock.spec, grant, lease, attempt), lock.spec.performer)
    except BaseException:
        run_twice_if_interrupted(partial(_end_attempt, lock.spec, grant, attempt))
        raise


async def adetach_grant(lock: SpecifiedLock, grant: Grant, expire: Duration | None) -> str:
    """End the hold of a grant here, in a running event loop, and return the text with which another process attaches
    it. Arguments and exceptions as of ``Grant.adetach``."""
    lease, attempt = _check(lock.spec, grant, expire), object()
    try:
        return await arun(_detaching(lock.spec, grant, lease, attempt), lock.spec.performer)
    except BaseException:
        run_twice_if_interrupted(partial(_end_attempt, lock.spec, grant, attempt))
        raise


def _check(spec: LockSpec, grant: Grant, expire: Duration | None) -> int:
    """Check that the grant can be detached, and return the lease of the journey in milliseconds.

    Raises:
        ValueError: ``expire`` isn't a duration.
        TypeError: locks with these options can't be detached.
        LockAlreadyHeld: the lock was entered several times.
        InvalidLockBackend: the store has no detached holds.
    """
    spec.performer.require("detach", spec.alias)
    options, hold = spec.options, grant.hold
    lease = options.lease if expire is None else lease_ms(expire)
    if not options.auto_release:
        raise TypeError(f"lock {spec.name!r} has auto_release=False: its hold has no owner, so it can't move")
    if options.database:
        raise TypeError(
            f'lock {spec.name!r} has hold="transaction", which keeps it in this process until COMMIT: leave hold out'
        )
    others = len(hold.open_grants - {grant.id})
    if others:
        raise LockAlreadyHeld(
            f"lock {spec.name!r} can't be detached: it was entered {others + 1} times here, and only the last grant moves it",
            **spec.error_context,
        )
    return lease


def _detaching(spec: LockSpec, grant: Grant, lease: int, attempt: object) -> Program[str]:
    """Stop the use of the hold here, give its lock a new token, and return the text."""
    hold = grant.hold
    if not hold.begin_detach(grant.id, attempt):
        raise LockLost(f"lock {spec.name!r} was released in the meantime", **spec.error_context)
    if hold.watched:
        spec.performer.unwatch(hold)
    if hold.detached_token:  # an earlier attempt may have succeeded
        yield from spec.sending(_give_back(spec, hold), hold.deadline)
    hold.detached_token = mint_detached_token()  # a new one: late copies of what undoes that attempt don't know it
    text = _text_of(spec, hold, lease)
    age = round(1000 * hold.age())
    command = spec.steps.transfer(
        hold.token, hold.detached_token, lease, False, spec.detached_holder_text(), hold.fence or 0, age
    )
    fence, _, _ = yield from spec.sending(command, hold.deadline)
    if not fence:
        hold.state = State.GONE
        raise spec.loss_of(hold, "expired" if clock.now() >= hold.deadline else "taken")
    if hold.outcome_unknown:
        yield spec.cleanup(hold.token, hold.address)
    yield NotifyWaiters(spec.lock_id, passed_on=True)  # those that expect the lock from this process
    hold.state = State.GONE
    registry.forget(grant)
    events.emit(events.Detached(spec.key, spec.name, spec.alias, hold.fence, hold.age()))
    return text


def _give_back(spec: LockSpec, hold: Hold) -> Command[int]:
    """Return the command that gives a detached lock the token of its hold again. It leaves the lease as it is."""
    owner: Any = hold.owner() or owners.owner_in(owners.running_loop())
    age = round(1000 * hold.age())
    return spec.steps.transfer(hold.detached_token, hold.token, 1, False, spec.holder_text(owner), hold.fence or 0, age)


def _end_attempt(spec: LockSpec, grant: Grant, attempt: object) -> None:
    """Continue a hold that may not have been detached, and undo that in the background. If the hold has ended, free the
    lock: no text was returned for it. No transfer shortens its lease, so it is held here until its deadline."""
    hold = grant.hold
    if hold.detaching is not attempt:
        return
    if not hold.resume(grant.id):
        registry.forget(grant)
        spec.perform(spec.cleanup(hold.token, hold.address))
        if hold.detached_token:
            spec.perform(spec.cleanup(hold.detached_token, ""))
    else:
        if hold.detached_token:
            spec.perform(_undoing(spec, _give_back(spec, hold)))
        granted = hold.deadline - hold.since if hold.unconfirmed else 0.0
        if hold.renew_until or hold.on_lost is not None or granted:
            spec.performer.watch(hold, spec.adopt_command(hold), hold.lease, granted)
    hold.detaching = None


def _undoing(spec: LockSpec, back: Command[int]) -> Cleanup:
    """Return the effect that undoes a transfer in the background."""
    return Cleanup(spec.lock_id, replace(back, parse=_nothing_freed), spec.options.lease / 1000)


def _nothing_freed(_reply: Any) -> int:
    return 0


def _text_of(spec: LockSpec, hold: Hold, lease: int) -> str:
    options = spec.options
    return DetachedHold(
        alias=spec.alias,
        kind=spec.steps.role or spec.steps.kind,
        key=spec.key,
        name=spec.name,
        token=hold.detached_token,
        lease=options.lease,
        renew_for=_finite(options.renew_for),
        max_hold=None if options.max_hold is None else _finite(options.max_hold),
        note=options.note,
        ends=round(1000 * clock.wall()) + lease,
        terms=spec.steps.terms,
    ).encode()


def _finite(seconds: float) -> float:
    return -1 if seconds == inf else seconds


# Attach


def attach(lock: SpecifiedLock, found: DetachedHold) -> Grant:
    """Take over a hold on its way. Exceptions as of ``LockMaker.attach``."""
    if owners.running_loop() is not None:
        lock.spec.performer.may_block()
    if lock.spec.options.on_lost == "cancel":
        raise ValueError('on_lost="cancel" cancels a task: attach the lock with aattach()')
    request = _new_request(None)
    try:
        return issue(lock, request, run(_attaching(lock.spec, request, found.token), lock.spec.performer))
    except BaseException as failure:
        run_twice_if_interrupted(partial(_undo, lock.spec, request, found, failure))
        raise


async def aattach(lock: SpecifiedLock, found: DetachedHold) -> Grant:
    """Take over a hold on its way, for a task. Exceptions as of ``LockMaker.aattach``."""
    request = _new_request(owners.running_loop())
    try:
        return issue(lock, request, await arun(_attaching(lock.spec, request, found.token), lock.spec.performer))
    except BaseException as failure:
        run_twice_if_interrupted(partial(_undo, lock.spec, request, found, failure))
        raise


def _new_request(loop: owners.Loop | None) -> AcquireRequest:
    forks.pid()
    return AcquireRequest(0.0, owners.owner_in(owners.running_loop()), loop)


def _attaching(spec: LockSpec, request: AcquireRequest, token: str) -> Program[Hold]:
    lease, holder = spec.options.lease, spec.holder_text(request.owner)
    request.maybe_executed = True
    fence, sent, _ = yield from spec.sending(spec.steps.transfer(token, request.token, lease, True, holder))
    if not fence:
        request.maybe_executed = False
        raise LockLost(
            f"lock {spec.name!r} can't be attached with this text any more: that was done before, its lease has ended, or it "
            "was released by force",
            **spec.error_context,
        )
    hold = request.hold = make_hold(spec, request, fence, sent, outcome_unknown=False)
    if clock.now() >= hold.deadline:
        raise LockLost(f"lock {spec.name!r}: the answer took longer than the lease", **spec.error_context)
    if hold.renew_until or hold.on_lost is not None:
        spec.performer.watch(hold, spec.steps.renew, hold.lease)
    return hold


def _undo(spec: LockSpec, request: AcquireRequest, found: DetachedHold, failure: BaseException) -> None:
    """Make the text usable again, in the background, after an attach without a result. The lock gets back what is left of
    the lease of its journey."""
    if request.issued is not None:
        forget_block(request.issued)
        registry.forget(request.issued)
    if request.hold is not None:
        request.hold.state = State.GONE
        spec.performer.unwatch(request.hold)
    refused = isinstance(failure, LockBackendError) and not failure.outcome_unknown
    if request.maybe_executed and not refused:
        lease = max(1, found.ends - round(1000 * clock.wall()))
        back = spec.steps.transfer(request.token, found.token, lease, False, spec.detached_holder_text())
        spec.perform(_undoing(spec, back))

"""Acquire a lock: the request, the straight attempt, the program if that wasn't enough, and the grant or the error."""

from __future__ import annotations

from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, Literal, overload

from ...core import clock, events, forks, owners
from ...core import holder as holders
from ...core.durations import Duration, wait_seconds
from ...core.effects import LeaveQueue
from ...core.errors import LockAlreadyHeld, LockBackendError, LockNotAcquired
from ...core.grant import Grant
from ...core.hold import Hold, State
from ...core.queue_values import Waiter
from ...core.registry import forget_block, registry
from ...core.runner import arun, run, run_twice_if_interrupted
from .acquire_program import GRANTED_TOO_LATE, UNREPLICATED, acquiring, make_hold
from .requests import NOT_QUEUED, SMALLEST_FENCE, AcquireRequest, Busy
from .retry import FirstReply

if TYPE_CHECKING:
    from .lock_spec import LockSpec, SpecifiedLock

_ALREADY_HELD = (
    "the caller holds it already. What may be entered again is rlock(), or @redis_lock(reentrant=True); "
    "a test of contention has another holder: django_redis_locks.testing.hold_lock()"
)

_KEPT_BY_TRANSACTION = (
    'an open transaction of this thread keeps it, with hold="transaction" or by @redis_lock. What enters it again until '
    'then is lock(key, hold="transaction"), or rlock(key)'
)


# The request


def new_request(
    lock: SpecifiedLock, blocking: bool, timeout: Duration | None, loop: owners.Loop | None, block: int = 0
) -> AcquireRequest | None:
    """Return the request of this caller, with the command of the straight attempt if it is likely to succeed. None if the
    answer is no without asking the store. ``loop`` is the running loop of an asynchronous caller."""
    spec = lock.spec
    options, performer = spec.options, spec.performer
    if loop is None and options.on_lost == "cancel":
        raise ValueError('on_lost="cancel" cancels a task: acquire the lock with aacquire() or "async with"')
    if getpid() != forks.known_pid:
        forks.pid()
    usual = blocking is True and timeout is None
    wait = options.wait if usual else wait_of_call(options.wait, blocking, timeout)
    running = owners.running_loop() if loop is None else loop
    owner: Any = owners.here.owner if running is None else owners.owner_in(running)
    request = AcquireRequest(wait, owner, loop, raise_if_busy=usual)
    request.block = block
    waiter = None
    if wait > 0:
        lease = options.lease if options.auto_release else 0  # 0: it can't be adopted without a request
        own_line = "" if spec.steps.shares_line else request.token
        waiter = request.waiter = Waiter(spec.lock_id, loop, spec.keys.inbox, lease, request, own_line)
    if spec.lock_id in registry.known and (spec.steps.exclusive or lock.reentrant):
        return request if may_ask(lock, request, blocking, loop) else None
    if loop is not running or options.replicas or performer.outage.suspected:
        return request
    try:
        if waiter is None or performer.uncontended(waiter):
            steps = spec.steps
            command = (steps.prepared or steps.prepare()).acquire
            thread = owner.name if running is None else owners.name_of(owner)
            holder = holders.describe(forks.known_pid, thread, spec.name, options.metadata, options.holder_extras)
            request.arguments = command.packed(options.lease, holder, *steps.terms)
            request.command = command
        else:
            request.contended = True
        return request
    except BaseException:
        if waiter is not None:
            run_twice_if_interrupted(partial(spec.perform, LeaveQueue(waiter, 0.0)))
        raise


def may_ask(lock: SpecifiedLock, request: AcquireRequest, blocking: bool, loop: object) -> bool:
    """Return whether the request may be sent although this process has a grant on the lock. It may re-enter a hold.

    Raises:
        LockAlreadyHeld: the caller has the lock, or would wait for itself.
        LockLost: re-entry into a lock that is lost.
    """
    spec = lock.spec
    two_sides = bool(lock.role)
    exclusive = lock.exclusive
    if any(
        grant.lock.exclusive is not exclusive or bool(grant.lock.role) != two_sides
        for grant in registry.at(spec.lock_id)
    ):
        return True  # the reply says that the kinds exclude each other
    newest = registry.newest(spec.lock_id, deferred=True)
    if newest is not None and newest.hold.held:
        if lock.may_reenter(newest, loop):
            if newest.hold.expired_or_lost:
                raise spec.loss_of(newest.hold, "expired")
            request.reentered = newest.hold
            return True
        usual = _KEPT_BY_TRANSACTION if newest.deferred else _ALREADY_HELD
        why = None if newest.hold.expired_or_lost else lock.why_not_reentered or usual
    elif not exclusive:
        why = None  # others may release their permits
    else:
        parent = spec.options.wait_for_parent
        why = registry.why_self_deadlock(spec.lock_id, lock.waits_for, wait_for_parent=parent)
    if why is not None and blocking:
        raise LockAlreadyHeld(f"lock {spec.name!r}: {why}", **spec.error_context)
    return why is None


def wait_of_call(default: float, blocking: bool, timeout: Duration | None) -> float:
    """Return the seconds that a call with these arguments waits."""
    if blocking not in (True, False):
        raise ValueError(f"blocking is True or False, not {blocking!r}; write acquire(timeout=...) for a wait")
    if blocking:
        return default if timeout is None else wait_seconds(timeout, "timeout")
    if timeout not in (None, -1):
        raise ValueError("acquire(blocking=False) takes no timeout")
    return 0.0


# The attempt that nearly always succeeds, and the program otherwise


@overload
def acquire(lock: SpecifiedLock, blocking: Literal[True], timeout: None, block: int) -> Grant: ...
@overload
def acquire(lock: SpecifiedLock, blocking: bool, timeout: Duration | None, *, quiet: bool = False) -> Grant | None: ...
def acquire(
    lock: SpecifiedLock, blocking: bool, timeout: Duration | None, block: int = 0, *, quiet: bool = False
) -> Grant | None:
    """Acquire the lock, for a block if that has an id. ``quiet``: a busy lock is no event. Other arguments and
    exceptions as of ``Lock.acquire``."""
    request = new_request(lock, blocking, timeout, None, block)
    try:
        if request is None:
            return None
        if request.command is not None:
            request.maybe_executed = True
            request.sent = clock.now()
            grant = _end_straight(lock, request, request.command.send(request.token, request.arguments))
            if grant is not None:
                return grant
        return grant_or_raise(lock, request, run(acquiring(lock.spec, request), lock.spec.performer), quiet)
    except BaseException as failure:  # noqa: BLE001 - raised again
        return handle_failure(lock, request, failure)


@overload
async def aacquire(lock: SpecifiedLock, blocking: Literal[True], timeout: None, block: int) -> Grant: ...
@overload
async def aacquire(
    lock: SpecifiedLock, blocking: bool, timeout: Duration | None, *, quiet: bool = False
) -> Grant | None: ...
async def aacquire(
    lock: SpecifiedLock, blocking: bool, timeout: Duration | None, block: int = 0, *, quiet: bool = False
) -> Grant | None:
    """Acquire the lock for a task, for a block if that has an id. ``quiet``: a busy lock is no event. Other
    arguments and exceptions as of ``Lock.aacquire``."""
    request = new_request(lock, blocking, timeout, owners.running_loop(), block)
    try:
        if request is None:
            return None
        if request.command is not None:
            request.maybe_executed = True
            request.sent = clock.now()
            grant = _end_straight(lock, request, await request.command.asend(request.token, request.arguments))
            if grant is not None:
                return grant
        return grant_or_raise(lock, request, await arun(acquiring(lock.spec, request), lock.spec.performer), quiet)
    except BaseException as failure:  # noqa: BLE001 - raised again
        return handle_failure(lock, request, failure)


def _end_straight(lock: SpecifiedLock, request: AcquireRequest, reply: Any) -> Grant | None:
    """Return the grant, or None if the program is to continue from this reply."""
    spec = lock.spec
    if type(reply) is int and reply > SMALLEST_FENCE:
        hold = request.hold = spec.new_hold(
            request.token, request.grant_id, reply, request.sent, request.owner, request.loop, False
        )
        now = clock.now()
        if now < hold.deadline:
            request.waited = now - request.sent
            if hold.renew_until or hold.on_lost is not None:
                spec.performer.watch(hold, spec.steps.renew, hold.lease)
            waiter = request.waiter
            if waiter is not None:
                shared = waiter.line is waiter.loop
                # others may have queued since
                if shared and spec.performer.end_uncontended(spec.lock_id, None) is not waiter:
                    pause = min(spec.performer.tuning.max_poll_interval, hold.lease / 1000)
                    spec.perform(LeaveQueue(waiter, pause, NOT_QUEUED))
                request.waiter = None
            return issue(lock, request, hold)
        request.hold = None
    request.first = FirstReply(request.sent, reply)
    return None


# The grant, or the error


def grant_or_raise(lock: SpecifiedLock, request: AcquireRequest, verdict: Hold | Busy, quiet: bool) -> Grant | None:
    """Return the grant of a hold. For a busy lock return None, or raise."""
    spec = lock.spec
    if type(verdict) is not Busy:
        return issue(lock, request, verdict)
    if verdict is GRANTED_TOO_LATE:
        raise LockBackendError(
            f"the answer took longer than the lease of {spec.options.lease / 1000:g} s: the lock wasn't acquired",
            transient=True,
        )
    if not quiet:
        events.emit(events.Contended(spec.key, spec.name, spec.alias, request.waited))
    if not request.raise_if_busy:
        return None
    holder = verdict.holder
    held = f", held by {holder}" if holder is not None else ""
    problem = f"was copied to fewer than {spec.options.replicas} replicas" if verdict is UNREPLICATED else "is busy"
    raise LockNotAcquired(
        f"lock {spec.name!r} {problem}{held}; waited {request.waited:.3f} s",
        waited=request.waited,
        retry_after=verdict.lease_left,
        holder=holder,
        **spec.error_context,
    )


def issue(lock: SpecifiedLock, request: AcquireRequest, hold: Hold, make_grant: type[Grant] = Grant) -> Grant:
    """Return the grant of a new hold or entry, and register it."""
    spec = lock.spec
    grant = request.issued = make_grant(hold, lock, request.grant_id, request.block)
    crowded = spec.options.auto_release and registry.register(grant, request.block)
    if crowded and not hold.renew_until and not hold.unconfirmed:  # the confirmation sees to it
        spec.performer.forget_at_end(hold)
    if events.listeners or events.acquire_log.isEnabledFor(events.Acquired.level):
        events.emit(events.Acquired(spec.key, spec.name, spec.alias, hold.fence, request.waited))
    return grant


def handle_failure(lock: SpecifiedLock, request: AcquireRequest | None, failure: BaseException) -> Grant:
    """Undo the request and raise the failure again. With ``ON_BACKEND_ERROR`` "open" a store that is down gives an
    unprotected grant instead."""
    spec = lock.spec
    try:
        if request is None:
            raise failure
        run_twice_if_interrupted(partial(undo_request, spec, request, failure))
        if not isinstance(failure, LockBackendError):
            raise failure
        spec.with_context(failure)
        if not spec.options.fail_open:
            raise failure
        events.emit(events.BackendFailed(spec.key, spec.name, spec.alias, "acquire, going on unlocked", str(failure)))
        unprotected = make_hold(spec, request, None, sent=0.0, outcome_unknown=False)
        grant = request.issued = Grant(unprotected, lock, request.grant_id, request.block)
        if spec.options.auto_release:
            registry.register(grant, request.block)
        return grant
    finally:
        del failure  # else its traceback and this frame keep each other, and the caller's frame, in memory


def undo_request(spec: LockSpec, request: AcquireRequest, failure: BaseException) -> None:
    """Leave the queue, and free in the background what the request may have acquired. Repeating this has no effect."""
    if request.waiter is not None:
        spec.perform(LeaveQueue(request.waiter, 0.0))  # the next one asks at once: a wake-up may have been spent
    if request.issued is not None:
        forget_block(request.issued)
        registry.forget(request.issued)
    if request.reentered is not None:
        request.reentered.remove_grant(request.grant_id)
    hold = request.hold
    if hold is not None:
        hold.state = State.GONE
        spec.performer.unwatch(hold)
    refused = isinstance(failure, LockBackendError) and not failure.outcome_unknown
    owns_hold = request.waiter is None or not request.waiter.gave_back
    if (hold is not None and owns_hold) or (request.maybe_executed and not refused):
        spec.perform(spec.cleanup(request.token, request.address))

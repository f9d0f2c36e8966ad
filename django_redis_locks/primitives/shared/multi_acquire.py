"""Acquire several locks, all or none.

The program attempts to acquire all of them without waiting: the mutexes of one alias and bucket by one command that takes all
of them or none, other locks one by one, in an order that is the same for all callers. If one is busy, it gives back what it
has, and waits for that one in its ordinary wait queue. When it is granted that lock, it attempts to acquire the others, and so
on. So it keeps no lock while it waits for another one, and no order of acquires can cause a deadlock.

Two callers that are each granted a lock of the other one at the same moment give both back. After that a caller pauses for a
random time, which grows, so that one of them is first.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from os import getpid
from random import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core import clock, events, forks, owners
from ...core.durations import Duration
from ...core.effects import Sleep
from ...core.errors import LockBackendError, LockLost
from ...core.hold import Hold
from ...core.multi_grant import MemberGrant, MultiGrant, Siblings
from ...core.queue_values import Waiter
from ...core.registry import registry
from ...core.runner import run_twice_if_interrupted
from .acquire import grant_or_raise, issue, may_ask, undo_request, wait_of_call
from .acquire_program import GRANTED_TOO_LATE, acquiring, make_hold, watch
from .extend import extending
from .multi_effects import RunAt
from .multi_steps import Refused, acquire_all, group_of
from .release import releasing
from .requests import AcquireRequest, Busy, ForeignValue
from .retry import retry_command
from .wait_loop import UNQUEUED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...core.commands import Program
    from ...core.keys import LockId
    from .base_lock import BaseLock


PAUSE: Final = 0.002, 0.1
"""The bounds in seconds of the pauses after locks were given back: the first one, and the longest one."""


class Held(NamedTuple):
    """A lock that the program has, or asks for."""

    lock: BaseLock
    request: AcquireRequest
    hold: Hold | None = None


class RefusedBy(NamedTuple):
    """A lock that is busy, and the reply that says so."""

    lock: BaseLock
    verdict: Busy


class MultiRequest:
    """A request of one caller to acquire all of these locks.

    Args:
        locks: in the order in which they are attempted.
        wait: seconds for all of them together.
        owner: the caller.
        loop: the running loop of an asynchronous caller.
        raise_if_busy: whether a busy lock is an error.
    """

    def __init__(
        self, locks: Sequence[BaseLock], wait: float, owner: owners.Owner, loop: object, *, raise_if_busy: bool
    ) -> None:
        self.locks = locks
        self.wait = wait
        self.owner = owner
        self.loop = loop
        self.raise_if_busy = raise_if_busy
        self.began = clock.now()
        self.parts: dict[LockId, Held] = {}
        """What the program has, or may have, of each lock."""
        self.returned = 0
        """How many times locks were given back."""
        self.reentered: dict[LockId, Hold | None] = {}
        """The holds of the caller that are entered once more."""

    @property
    def left(self) -> float:
        """The seconds that are left of the wait."""
        return max(0.0, self.began + self.wait - clock.now())

    def new_part(self, lock: BaseLock) -> Held:
        """Return a new request for a lock, which waits for a store that refuses, but not for a holder."""
        part = self.parts[lock.lock_id] = Held(lock, AcquireRequest(self.left, self.owner, self.loop))
        part.request.reentered = self.reentered.get(lock.lock_id)
        return part

    def has(self, part: Held, hold: Hold) -> None:
        """Record that a lock was acquired."""
        self.parts[part.lock.lock_id] = part._replace(hold=hold)


def new_request(
    locks: Sequence[BaseLock], wait: float, blocking: bool, timeout: Duration | None, loop: owners.Loop | None
) -> MultiRequest | None:
    """Return the request of this caller; None if the answer is no without asking a store.

    Raises:
        LockAlreadyHeld: the caller has one of the locks, or would wait for itself.
        LockLost: re-entry into a lock that is lost.
    """
    seconds = wait_of_call(wait, blocking, timeout)
    if getpid() != forks.known_pid:
        forks.pid()
    usual = blocking is True and timeout is None
    request = MultiRequest(locks, seconds, owners.owner_in(loop or owners.running_loop()), loop, raise_if_busy=usual)
    for lock in locks:
        spec = lock.spec
        part = request.new_part(lock)
        may_be_own = spec.lock_id in registry.known and (spec.steps.exclusive or lock.reentrant)
        if may_be_own and not may_ask(lock, part.request, blocking, loop):
            return None
        request.reentered[spec.lock_id] = part.request.reentered
    return request


# The program


def acquiring_all(request: MultiRequest) -> Program[RefusedBy | None]:
    """Acquire all locks, or none; return the one that was busy when the wait was over."""
    while True:
        refused = yield from _attempting(request)
        if refused is None:
            refused = yield from _too_late(request)
            if refused is None:
                return None
        had_any = yield from _giving_back(request)
        if request.left <= 0:
            return refused
        if had_any:
            yield from _pausing(request, refused.lock)
        if refused.verdict is not GRANTED_TOO_LATE:
            refused = yield from _waiting_for(request, refused.lock)
            if refused is not None:
                return refused


def _attempting(request: MultiRequest) -> Program[RefusedBy | None]:
    """Acquire the locks that the program hasn't, without waiting. Return the first one that is busy."""
    for parts in _groups(request):
        if len(parts) > 1:
            refused = yield from _acquiring_group(request, parts)
        else:
            refused = yield from _acquiring_one(request, parts[0])
        if refused is not None:
            return refused
    return None


def _groups(request: MultiRequest) -> Iterator[list[Held]]:
    """Yield the requests for the locks that are missing, those together that one command may concern."""
    parts = [request.parts.get(lock.lock_id) or request.new_part(lock) for lock in request.locks]
    missing = [part for part in parts if part.hold is None]
    for group, found in groupby(missing, lambda part: group_of(part.lock.spec)):
        members = list(found)
        alone = [part for part in members if group is None or part.request.reentered is not None]
        together = [part for part in members if part not in alone]
        yield from ([part] for part in alone)
        if together:
            yield together


def _acquiring_one(request: MultiRequest, part: Held) -> Program[RefusedBy | None]:
    spec = part.lock.spec
    part.request.wait = request.left
    verdict = yield from RunAt(acquiring(spec, part.request), spec.performer)
    if isinstance(verdict, Hold):
        request.has(part, verdict)
        return None
    del request.parts[part.lock.lock_id]
    return RefusedBy(part.lock, verdict)


def _waiting_for(request: MultiRequest, lock: BaseLock) -> Program[RefusedBy | None]:
    """Wait for a busy lock in its wait queue."""
    spec, part = lock.spec, request.new_part(lock)
    own_line = "" if spec.steps.shares_line else part.request.token
    lease = spec.options.lease
    part.request.waiter = Waiter(spec.lock_id, request.loop, spec.keys.inbox, lease, part.request, own_line)
    return (yield from _acquiring_one(request, part))


def _acquiring_group(request: MultiRequest, parts: list[Held]) -> Program[RefusedBy | None]:
    """Acquire several mutexes by one command."""
    specs, requests = [part.lock.spec for part in parts], [part.request for part in parts]
    spec = specs[0]
    for each in requests:
        each.maybe_executed = True
    command = acquire_all(specs, requests)
    program = retry_command(
        command, clock.now() + request.left, spec.options.acquire_limits, tuning=spec.performer.tuning
    )
    try:
        reply, sent, outcome_unknown = yield from RunAt(program, spec.performer)
    except LockBackendError as failure:
        spec.with_context(failure)
        raise
    if not isinstance(reply, Refused):
        for part, fence in zip(parts, reply, strict=True):
            hold = part.request.hold = make_hold(part.lock.spec, part.request, fence, sent, outcome_unknown)
            request.has(part, hold)
            watch(part.lock.spec, hold, UNQUEUED)
        return None
    for part in parts:
        if outcome_unknown:  # a late copy of the request may acquire the lock
            part.lock.spec.perform(part.lock.spec.cleanup(part.request.token, ""))
        del request.parts[part.lock.lock_id]
    refusing = parts[reply.number].lock
    if isinstance(reply.verdict, ForeignValue):
        raise refusing.spec.refusal(reply.verdict)
    return RefusedBy(refusing, reply.verdict)


def _too_late(request: MultiRequest) -> Program[RefusedBy | None]:
    """Check that each lock is still held, and extend leases that are half over. Return one that has ended."""
    for part in request.parts.values():
        spec, hold, now = part.lock.spec, part.hold, clock.now()
        assert hold is not None  # noqa: S101 - all were acquired
        try:
            if hold.live and hold.deadline - now < (hold.deadline - hold.confirmed_at) / 2:
                yield from RunAt(extending(spec, hold, hold.lease), spec.performer)
        except LockLost:
            pass
        if not hold.live:
            return RefusedBy(part.lock, GRANTED_TOO_LATE)
    return None


def _giving_back(request: MultiRequest) -> Program[bool]:
    """Release what was acquired. Return whether anything was."""
    parts = [part for part in request.parts.values() if part.hold is not None]
    for lock, request_of_lock, hold in reversed(parts):
        assert hold is not None  # noqa: S101 - see above
        if hold.release_grant(request_of_lock.grant_id):
            try:
                yield from RunAt(releasing(lock.spec, hold, request.loop), lock.performer)
            except LockLost:
                pass
        del request.parts[lock.lock_id]
    return bool(parts)


def _pausing(request: MultiRequest, lock: BaseLock) -> Program[None]:
    """Sleep for a random time."""
    first, longest = PAUSE
    seconds = min(first * 2**request.returned, longest) * random()  # noqa: S311 - no secret
    request.returned = min(request.returned + 1, 10)
    yield from RunAt(_sleeping(min(seconds, request.left)), lock.performer)


def _sleeping(seconds: float) -> Program[None]:
    yield Sleep(seconds)


# The grant, or the error


def grant_all(lock: Any, request: MultiRequest, refused: RefusedBy | None, block: int) -> MultiGrant | None:
    """Return the grant of all locks; None, or raise, if one was busy."""
    if refused is not None:
        busy = AcquireRequest(0.0, request.owner, request.loop, raise_if_busy=request.raise_if_busy)
        busy.waited = clock.now() - request.began
        grant_or_raise(refused.lock, busy, refused.verdict, quiet=False)
        return None
    grants: list[MemberGrant] = []
    for member in request.locks:
        part = request.parts[member.lock_id]
        part.request.block, part.request.waited = block, clock.now() - request.began
        assert part.hold is not None  # noqa: S101 - none was busy
        grant: Any = issue(member, part.request, part.hold, MemberGrant)
        grants.append(grant)
    return _joined(lock, grants, block)


def _joined(lock: Any, grants: list[MemberGrant], block: int) -> MultiGrant | None:
    siblings = Siblings(grants, lock, block)
    for grant in grants:
        grant.siblings = siblings
    return siblings.whole()


def undo_all(lock: Any, request: MultiRequest | None, failure: BaseException, block: int) -> MultiGrant | None:
    """Undo the request, and raise the failure again. With ``ON_BACKEND_ERROR`` "open" for all locks, a store that is down
    gives an unprotected grant instead."""
    try:
        if request is None:
            raise failure
        run_twice_if_interrupted(partial(_undo_parts, request, failure))
        if not isinstance(failure, LockBackendError) or not all(each.options.fail_open for each in request.locks):
            raise failure
        grants: list[MemberGrant] = []
        for member in request.locks:
            spec, part = member.spec, AcquireRequest(0.0, request.owner, request.loop)
            reason = str(failure)
            events.emit(events.BackendFailed(spec.key, spec.name, spec.alias, "acquire, going on unlocked", reason))
            grant = MemberGrant(
                make_hold(spec, part, None, sent=0.0, outcome_unknown=False), member, part.grant_id, block
            )
            registry.register(grant, block)
            grants.append(grant)
        return _joined(lock, grants, block)
    finally:
        del failure  # else its traceback and this frame keep each other, and the caller's frame, in memory


def _undo_parts(request: MultiRequest, failure: BaseException) -> None:
    for part in request.parts.values():
        undo_request(part.lock.spec, part.request, failure)

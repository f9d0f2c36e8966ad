"""One process: its contenders and the engine that they share, with its queues and its maintenance thread. All of it is
the real code, without threads: the explorer decides when a contender makes a step.

A contender's *step* is one blocking effect, or one local effect that is visible to others, and the program up to the
next such effect. Work that is done in the same step as its predecessor commutes with the steps of others in between:

- ``Cleanup``: adds to the maintenance thread's list, where it may stay for any time anyway.
- the beginning of a program up to its first request, or with the ``Wait`` that joins the queue, or up to ``HandOver``:
  this contender isn't visible to others yet, and one that is about to release may as well still hold the lock.
- a sleeper whose event was set without reason sleeps again at once: later it would find the next change, which must set
  the event again. If that doesn't happen, the explorer reports the missed wake-up.

Cleanup after a failure is a step of its own if it is visible to others: a waiter leaves the queue, or the waiters are
notified that the lock may be free.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from django_redis_locks import locks
from django_redis_locks.backends.base import Backend, MessageHandler, Subscriber
from django_redis_locks.core import owners
from django_redis_locks.core.commands import Effect, Program
from django_redis_locks.core.effects import Cleanup, HandOver, LeaveQueue, NotifyWaiters, Sleep, Wait
from django_redis_locks.core.errors import LockBackendError, LockLost
from django_redis_locks.core.grant import Grant
from django_redis_locks.core.hold import Hold, State
from django_redis_locks.core.keys import LockId, LockKeys
from django_redis_locks.core.queue_values import Waiter
from django_redis_locks.core.steps import positional
from django_redis_locks.core.write_hold import READ, WriteHold
from django_redis_locks.engine import engine as engine_module
from django_redis_locks.engine.engine import Engine
from django_redis_locks.primitives.lock import Lock
from django_redis_locks.primitives.rwlock import ReadLock, WriteLock
from django_redis_locks.primitives.semaphore import Semaphore
from django_redis_locks.primitives.shared.acquire import handle_failure
from django_redis_locks.primitives.shared.base_lock import BaseLock
from django_redis_locks.primitives.shared.downgrade import downgrade_later, downgrading
from django_redis_locks.primitives.shared.extend import extending
from django_redis_locks.primitives.shared.fair_steps import FairSteps
from django_redis_locks.primitives.shared.lock_spec import LockSpec
from django_redis_locks.primitives.shared.mutex_steps import MutexSteps
from django_redis_locks.primitives.shared.permit_steps import SEMAPHORE, PermitSteps
from django_redis_locks.primitives.shared.requests import AcquireRequest, LockOptions
from django_redis_locks.primitives.shared.rwlock_steps import ReadSteps, WriteSteps

from . import straight
from .environment import RecordingEvent, Timestamp, environment
from .plans import Plan

PROCESS = "~"
"""Placeholder for the process number in tokens and addresses, so that processes with equal plans have equal states."""

KEYS = LockKeys("}:k:lock", "}:w:lock", "fence", "index", "inbox:")
LOCK_ID = LockId("store", KEYS.lock)

CLASSES: dict[str, type[BaseLock]] = {"semaphore": Semaphore, "read": ReadLock, "write": WriteLock}
STEPS: dict[str, Any] = {"lock": MutexSteps, "fair": FairSteps, "read": ReadSteps, "write": WriteSteps}

Input = tuple[Any, ...]


@dataclass
class Contender:
    plan: Plan
    name: str
    phase: str = "new"
    acquisitions: int = 0
    minted: int = 0
    program: Program[Any] | None = None
    effect: Any = None
    """The effect that the program has yielded, or the effect of the cleanup that is visible to others."""
    sleeps_until: float | None = None
    """End of its sleep; None while it doesn't sleep."""
    awake: bool = False
    """It has its turn and hasn't continued yet."""
    failure: BaseException | None = None
    """The exception that the program raised, before the cleanup."""
    queue_number: int = 0
    """The number of the queue that it may have to create."""
    acquire_request: AcquireRequest | None = None
    grant: Grant | None = None
    leaves_at: float = 0.0
    extended: bool = False
    downgraded: bool = False
    """It has left the write side of its lock, and reads."""

    def new_token(self) -> str:
        self.minted += 1
        return f"{PROCESS}{self.name}{self.minted}"


class _Backend(Backend):
    identity = LOCK_ID.store

    def __init__(self) -> None:
        self.listening = False
        self.reply: Any = None

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        return _Subscriber(self)

    def call_many(self, commands: Any, timeout: float) -> list[Any]:
        return [self.reply]


class _Subscriber(Subscriber):
    def __init__(self, backend: _Backend) -> None:
        self._backend = backend

    def channel_name(self, channel: str) -> str:
        return channel + PROCESS if self._backend.listening else ""


class _Peek:
    """An engine that changes nothing."""

    def __init__(self, engine: Engine) -> None:
        self.tuning, self.call_at, self.may_block = engine.tuning, engine.call_at, engine.may_block
        self.subscribed_channel = engine.subscribed_channel

    def unregister(self, *args: object) -> None: ...
    def return_grant(self, *args: object) -> None: ...
    def free_handed_over(self, handed: object) -> None: ...
    def submit(self, job: object) -> None: ...


class Process:
    """Applies one input at a time: a step of a contender, a reply, a message, a fault or passing time."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self.now = Timestamp(0.0)
        self.backend = _Backend()
        self.engine = Engine(self.backend, locks.tuning)
        del engine_module._queues[LOCK_ID.store]  # each process has its own queues
        self.maintenance = self.engine._maintenance
        self.maintenance._thread.start = lambda: None  # type: ignore[method-assign]
        self.contenders = [Contender(plan, name) for plan, name in zip(plans, "abcdef", strict=False)]
        self.locks = [self._lock(plan) for plan in plans]
        self.holds: list[Hold] = []
        self.violation = ""
        self.disconnected = False
        self.cleanup_abandoned = False
        """The maintenance thread has just abandoned a cleanup after several requests without a reply."""

    def _lock(self, plan: Plan) -> BaseLock:
        options = LockOptions(round(plan.lease * 1000), plan.wait, 0.0, False, False, (), None)
        steps: Any
        if plan.kind == "semaphore":
            steps = PermitSteps(self.engine, KEYS, "lock", options, SEMAPHORE, plan.limit, plan.permits)
        else:
            steps = STEPS[plan.kind](self.engine, KEYS, "lock", options)
        kind = CLASSES.get(plan.kind, Lock)
        return kind(LockSpec(self.engine, LOCK_ID, KEYS, "lock", "lock", "default", options, steps))

    def apply(self, input: Input) -> None:
        """Make one step."""
        environment.now = self.now
        self.cleanup_abandoned = False
        kind, *rest = input
        getattr(self, f"_{kind}")(*rest)
        jobs = self.maintenance._jobs
        while jobs:
            jobs.popleft()()
        for contender in self.contenders:
            self._update_sleep(contender)
        for hold in self.holds:
            if hold.loss_reason is not None and self.now < hold.deadline:
                self.violation = f"a live lock was reported as lost ({hold.loss_reason})"

    # Steps of the contenders

    def _begin(self, index: int, queue_number: int) -> None:
        """``queue_number`` is for a new queue."""
        contender = self.contenders[index]
        contender.queue_number = queue_number
        contender.acquisitions += 1
        environment.new_token = contender.new_token
        request = contender.acquire_request = AcquireRequest(
            contender.plan.wait, owners.current_owner(), contender.plan.loop
        )
        if contender.plan.wait:
            lease = round(contender.plan.lease * 1000)
            own_line = "" if contender.plan.kind == "lock" else request.token
            request.waiter = Waiter(LOCK_ID, contender.plan.loop, KEYS.inbox, lease, request, own_line)
        contender.phase = "asking"
        contender.program = straight.acquiring_straight(self.locks[index], request)
        self._run(index, contender.program.send, None)
        if isinstance(contender.effect, Wait):
            self._run_effect(index)

    def _run_effect(self, index: int) -> None:
        """Perform the effect that the program has yielded."""
        contender = self.contenders[index]
        environment.new_token = contender.new_token
        effect = contender.effect
        if contender.failure is not None:
            self._clean_up(index)
        elif isinstance(effect, Wait):
            environment.queue_number = contender.queue_number
            attempt = self.engine._queues.begin_wait(effect, self.engine)
            contender.queue_number = 0
            if isinstance(attempt, float):
                contender.effect = Wait(effect.waiter, effect.until)
                contender.sleeps_until = self.now + attempt
            else:
                self._run(index, contender.program.send, attempt)  # type: ignore[union-attr]
        else:
            result = None if isinstance(effect, Sleep) else self._perform_effect(effect)
            self._run(index, contender.program.send, result)  # type: ignore[union-attr]

    def _perform_effect(self, effect: Effect[Any]) -> Any:
        return self.engine.handlers[type(effect)](effect)

    def _wake(self, index: int) -> None:
        contender = self.contenders[index]
        environment.new_token = contender.new_token
        attempt = self.engine._queues.continue_wait(contender.effect, self.engine)
        assert not isinstance(attempt, float)
        contender.sleeps_until, contender.awake = None, False
        self._run(index, contender.program.send, attempt)  # type: ignore[union-attr]

    def _subscribe(self, index: int) -> None:
        self.backend.listening = True
        self._run(index, self.contenders[index].program.send, True)  # type: ignore[union-attr]

    def _reply(self, index: int, reply: Any) -> None:
        contender = self.contenders[index]
        self._run(index, contender.program.send, contender.effect.read(reply))  # type: ignore[union-attr]

    def _fail(self, index: int) -> None:
        self._throw(index, LockBackendError("no answer", outcome_unknown=True, transient=True))

    def _cancel(self, index: int) -> None:
        self._throw(index, asyncio.CancelledError())

    def _signal(self, index: int, done: bool) -> None:
        """A signal handler raises at a local effect."""
        contender = self.contenders[index]
        if contender.failure is not None:
            with self._interrupting(type(contender.effect), done):
                self._clean_up(index)
            return
        if done:
            self._perform_effect(contender.effect)
        self._throw(index, KeyboardInterrupt())

    @contextmanager
    def _interrupting(self, kind: type[Effect[Any]], done: bool) -> Iterator[None]:
        """A signal handler raises at the next effect of a kind, before it or after it."""
        handlers = self.engine.handlers
        real = handlers[kind]

        def interrupt(effect: Effect[Any]) -> None:
            handlers[kind] = real
            if done:
                real(effect)
            raise KeyboardInterrupt

        handlers[kind] = interrupt
        yield
        assert handlers[kind] is real

    def _extend(self, index: int) -> None:
        contender = self.contenders[index]
        contender.extended = True
        contender.phase = "extending"
        assert contender.grant is not None
        contender.program = extending(self.locks[index].spec, contender.grant.hold, round(contender.plan.extend * 1000))
        self._run(index, contender.program.send, None)

    def _downgrade(self, index: int) -> None:
        """Enter the read side, and leave the write side."""
        contender, lock = self.contenders[index], self.locks[index]
        assert contender.grant is not None
        hold = contender.grant.hold
        contender.downgraded = True
        assert isinstance(hold, WriteHold)
        inner = Grant(hold, lock, contender.grant.id + 1)
        assert hold.add_grant(inner.id, role=READ)
        assert hold.end_write(contender.grant.id)
        contender.grant, contender.phase = inner, "downgrading"
        contender.program = downgrading(lock.spec, hold)
        self._run(index, contender.program.send, None)

    def _release(self, index: int) -> None:
        contender, lock = self.contenders[index], self.locks[index]
        assert contender.grant is not None
        assert contender.grant.hold.release_grant(contender.grant.id)
        contender.phase = "leaving"
        contender.program = straight.releasing_straight(lock, contender.grant, contender.plan.loop)
        self._run(index, contender.program.send, None)
        if isinstance(contender.effect, HandOver):
            self._run_effect(index)

    def _throw(self, index: int, failure: BaseException) -> None:
        contender = self.contenders[index]
        contender.sleeps_until, contender.awake = None, False
        self._run(index, contender.program.throw, failure)  # type: ignore[union-attr]

    def _run(self, index: int, resume: Callable[[Any], Any], result: Any) -> None:
        contender = self.contenders[index]
        environment.new_token = contender.new_token
        send = contender.program.send  # type: ignore[union-attr]
        try:
            effect = resume(result)
            while isinstance(effect, Cleanup):
                effect = send(self._perform_effect(effect))
        except StopIteration as done:
            contender.effect = contender.program = None
            self._ended(index, done.value)
        except BaseException as failure:  # noqa: BLE001 - judged
            contender.effect = contender.program = None
            self._failed(index, failure)
        else:
            contender.effect = effect

    def _ended(self, index: int, result: Any) -> None:
        contender = self.contenders[index]
        if isinstance(result, Hold):
            assert contender.acquire_request is not None
            contender.queue_number = 0
            contender.grant = Grant(result, self.locks[index], contender.acquire_request.grant_id)
            contender.acquire_request = None
            contender.extended = not contender.plan.extend
            contender.leaves_at = self.now + contender.plan.hold_for
            self.holds.append(result)
        elif contender.phase not in ("extending", "downgrading"):
            contender.acquire_request = contender.grant = None
            contender.queue_number, contender.leaves_at, contender.extended = 0, 0.0, False
            contender.downgraded = False
        if contender.grant is not None:
            contender.phase = "inside"
        else:
            contender.phase = "new" if contender.acquisitions < contender.plan.acquisitions else "over"

    def _failed(self, index: int, failure: BaseException) -> None:
        contender = self.contenders[index]
        if not isinstance(failure, (LockBackendError, LockLost, asyncio.CancelledError, KeyboardInterrupt)):
            raise failure
        if contender.phase == "downgrading":  # the block of the write side ends
            assert contender.grant is not None
            assert isinstance(contender.grant.hold, WriteHold)
            downgrade_later(self.locks[index].spec, contender.grant.hold)
        if contender.phase in ("extending", "downgrading"):  # the block continues, or ends
            contender.phase = "inside"
            return
        contender.failure = failure
        acquire_request, grant = contender.acquire_request, contender.grant
        if acquire_request is not None and acquire_request.waiter is not None:
            contender.effect = LeaveQueue(acquire_request.waiter, 0.0)
        elif grant is not None and grant.hold.state is State.RELEASING and not grant.hold.release_failed:
            contender.effect = NotifyWaiters(
                LOCK_ID, False, grant.hold.entry, self.locks[index].spec.steps.release_keys
            )
        else:
            self._clean_up(index)

    def _clean_up(self, index: int) -> None:
        contender, lock, failure = self.contenders[index], self.locks[index], self.contenders[index].failure
        assert failure is not None
        contender.effect = contender.failure = None
        try:
            if contender.acquire_request is not None:
                handle_failure(lock, contender.acquire_request, failure)
            elif contender.grant is not None:
                lock.clean_up_release(contender.grant, failure)
        except (type(failure), KeyboardInterrupt) as raised:
            failure = raised
        if contender.grant is not None and contender.plan.retries_release and isinstance(failure, LockBackendError):
            contender.phase = "inside"
            return
        contender.acquire_request = contender.grant = None
        contender.queue_number, contender.leaves_at, contender.extended = 0, 0.0, False
        contender.phase = "over"

    # Events from outside

    def _message(self, queue_number: str, token: str) -> None:
        """A wake-up, or a grant to a token."""
        self.engine.on_message(f"{queue_number},{token},1000" if token else queue_number, KEYS.lock)

    def _disconnect(self) -> None:
        """Lose the subscriber's connection."""
        self.disconnected, self.backend.listening = True, False

    def _reconnect(self) -> None:
        self.disconnected, self.backend.listening = False, True
        self.engine.on_reconnect()

    def cleanups(self) -> list[Any]:
        """The pending requests of the maintenance thread, the earliest first."""
        return sorted(
            self.maintenance._cleanups._due,
            key=lambda cleanup: (cleanup[0], cleanup[2].name, positional(cleanup[2].args)),
        )

    def _cleanup_reply(self, index: int, reply: Any) -> None:
        """A cleanup request gets its reply, or none (None)."""
        cleanups = self.maintenance._cleanups
        due = self.cleanups()
        before = len(due)
        self.backend.reply = LockBackendError("no answer", outcome_unknown=True) if reply is None else reply
        cleanups._due = [due.pop(index)]
        cleanups.run(inf, inf)
        for cleanup in due:
            heapq.heappush(cleanups._due, cleanup)
        self.cleanup_abandoned = reply is None and len(cleanups._due) < before

    def _time(self, seconds: float) -> None:
        self.now = environment.now = self.now + seconds

    # Sleep

    def _update_sleep(self, contender: Contender) -> None:
        """Wake a sleeping contender that has its turn; otherwise reset its event and its time of sleep."""
        if contender.sleeps_until is None or contender.awake:
            return
        wait = contender.effect
        event: RecordingEvent = wait.waiter.event
        if not (event.opened or contender.sleeps_until <= self.now):
            return
        queue, attempt = copy.copy(wait.waiter.queue), wait.waiter.attempt
        environment.new_token = str
        verdict = queue.attempt(wait.waiter, wait.until, _Peek(self.engine))  # on a copy, which changes nothing
        wait.waiter.attempt = attempt
        event.opened = False
        if isinstance(verdict, float):
            contender.sleeps_until = self.now + verdict
        else:
            contender.awake, contender.sleeps_until = True, -inf

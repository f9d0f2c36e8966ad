"""One process: its contenders, and the engine that they share, with its queues and its janitor. All of it is the real
code, without threads: each step of a contender is taken when the explorer says so.

A contender's *step* is one blocking effect, or one local effect that others may notice, and the program up to the next
such effect. What is done together with the step before it commutes with whatever others do in between:

- ``Cleanup``: an errand is put into the janitor's list, where it may stay as long as it pleases anyway.
- the beginning of a program up to its first question, or with the ``Wait`` that joins the queue, or up to ``HandOver``:
  nobody knows of this contender yet, and who is about to release may as well still be inside.
- a sleeper whose gate was opened for nothing sleeps again at once: had he been slower he would find what comes after,
  and whatever that is must open his gate again. If it doesn't he misses it here, and that is an error worth finding.

What clears up after a failure is a step of its own, if others may notice it: a seat is given up, or those who wait are
told that the lock may be free.
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
from django_redis_locks.engine import engine as engines
from django_redis_locks.engine.engine import Engine
from django_redis_locks.primitives.lock import Lock
from django_redis_locks.primitives.shared.requests import AcquireRequest, LockOptions

from .moments import Gate, Moment, performer
from .plans import Plan

ME = "~"
"""Stands for the number of the process in whatever it names, so that all processes are alike."""

KEYS = LockKeys("}:k:lock", "}:w:lock", "fence", "index", "inbox:")
PLACE = LockId("store", KEYS.lock)

Input = tuple[Any, ...]


@dataclass
class Contender:
    plan: Plan
    name: str
    phase: str = "new"
    schedule: int = 0
    minted: int = 0
    program: Program[Any] | None = None
    effect: Any = None
    """What the program waits to be told, or what others will notice of the clearing up."""
    until: float | None = None
    """How long he sleeps; None if he doesn't."""
    awake: bool = False
    """It is his turn."""
    failure: BaseException | None = None
    """The program has failed with it, and what it left behind is to be cleared away."""
    number: int = 0
    """For the queue that he may have to make."""
    ask: AcquireRequest | None = None
    grant: Grant | None = None
    leaves: float = 0.0
    extended: bool = False

    def mint(self) -> str:
        self.minted += 1
        return f"{ME}{self.name}{self.minted}"


class _Backend(Backend):
    identity = PLACE.store

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
        return channel + ME if self._backend.listening else ""


class Process:
    """Takes inputs, which are its steps and what it is told from outside, one at a time."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self.now = Moment(0.0)
        self.backend = _Backend()
        self.engine = Engine(self.backend, locks.tuning)
        del engines._queues[PLACE.store]  # each process has its own
        self.maintenance = self.engine._maintenance
        self.maintenance._thread.start = lambda: None  # type: ignore[method-assign]
        self.contenders = [Contender(plan, name) for plan, name in zip(plans, "abcdef", strict=False)]
        self.locks = [self._lock(plan) for plan in plans]
        self.holds: list[Hold] = []
        self.complaint = ""
        self.deaf = False
        self.gave_up = False
        """The janitor has just given an errand up that wasn't answered again and again."""

    def _lock(self, plan: Plan) -> Lock:
        options = LockOptions(round(plan.lease * 1000), plan.wait, 0.0, False, False, (), None)
        return Lock(self.engine, PLACE, KEYS, "lock", "lock", "default", options)

    def take(self, input: Input) -> None:
        """One step."""
        performer.now = self.now
        self.gave_up = False
        kind, *rest = input
        getattr(self, f"_{kind}")(*rest)
        jobs = self.maintenance._jobs
        while jobs:
            jobs.popleft()()
        for contender in self.contenders:
            self._doze(contender)
        for hold in self.holds:
            if hold.lost_why is not None and self.now < hold.deadline:
                self.complaint = f"somebody was told without reason that he lost the lock ({hold.lost_why})"

    # What contenders do.

    def _begin(self, index: int, number: int) -> None:
        """``number`` is for a new queue."""
        contender = self.contenders[index]
        contender.number = number
        contender.schedule += 1
        performer.mint = contender.mint
        contender.ask = AcquireRequest(contender.plan.wait, owners.current_owner(), contender.plan.loop)
        contender.phase = "asking"
        contender.program = self.locks[index].acquiring(contender.ask)
        self._go_on(index, contender.program.send, None)
        if isinstance(contender.effect, Wait):
            self._do(index)

    def _do(self, index: int) -> None:
        """What the program asked for is done."""
        contender = self.contenders[index]
        effect = contender.effect
        if contender.failure is not None:
            self._clear_away(index)
        elif isinstance(effect, Wait):
            performer.number = contender.number
            attempt = self.engine._queues.begin_wait(effect, self.engine)
            effect.waiter.queue.number  # noqa: B018 - a queue gets its number now, not when it is asked for it
            contender.number = 0
            if isinstance(attempt, float):
                contender.effect = Wait(effect.waiter, effect.until)
                contender.until = self.now + attempt
            else:
                self._go_on(index, contender.program.send, attempt)  # type: ignore[union-attr]
        else:
            told = None if isinstance(effect, Sleep) else self._perform(effect)
            self._go_on(index, contender.program.send, told)  # type: ignore[union-attr]

    def _perform(self, effect: Effect[Any]) -> Any:
        return self.engine.handlers[type(effect)](effect)

    def _wake(self, index: int) -> None:
        contender = self.contenders[index]
        attempt = self.engine._queues.continue_wait(contender.effect, self.engine)
        assert not isinstance(attempt, float)
        contender.until, contender.awake = None, False
        self._go_on(index, contender.program.send, attempt)  # type: ignore[union-attr]

    def _listen(self, index: int) -> None:
        self.backend.listening = True
        self._go_on(index, self.contenders[index].program.send, True)  # type: ignore[union-attr]

    def _reply(self, index: int, reply: Any) -> None:
        contender = self.contenders[index]
        self._go_on(index, contender.program.send, contender.effect.read(reply))  # type: ignore[union-attr]

    def _fail(self, index: int) -> None:
        self._throw(index, LockBackendError("no answer", outcome_unknown=True, transient=True))

    def _cancel(self, index: int) -> None:
        self._throw(index, asyncio.CancelledError())

    def _signal(self, index: int, done: bool) -> None:
        """A signal handler raises at a local effect."""
        contender = self.contenders[index]
        if contender.failure is not None:
            with self._striking(type(contender.effect), done):
                self._clear_away(index)
            return
        if done:
            self._perform(contender.effect)
        self._throw(index, KeyboardInterrupt())

    @contextmanager
    def _striking(self, kind: type[Effect[Any]], done: bool) -> Iterator[None]:
        """A signal handler raises at the next effect of a kind, before it or after it."""
        handlers = self.engine.handlers
        real = handlers[kind]

        def strike(effect: Effect[Any]) -> None:
            handlers[kind] = real
            if done:
                real(effect)
            raise KeyboardInterrupt

        handlers[kind] = strike
        yield
        assert handlers[kind] is real

    def _extend(self, index: int) -> None:
        contender = self.contenders[index]
        contender.extended = True
        contender.phase = "extending"
        assert contender.grant is not None
        contender.program = self.locks[index].extending(contender.grant.hold, round(contender.plan.extend * 1000))
        self._go_on(index, contender.program.send, None)

    def _release(self, index: int) -> None:
        contender, lock = self.contenders[index], self.locks[index]
        assert contender.grant is not None
        assert lock._end_grant(contender.grant)
        contender.phase = "leaving"
        contender.program = lock.releasing(contender.grant.hold, contender.plan.loop)
        self._go_on(index, contender.program.send, None)
        if isinstance(contender.effect, HandOver):
            self._do(index)

    def _throw(self, index: int, failure: BaseException) -> None:
        contender = self.contenders[index]
        contender.until, contender.awake = None, False
        self._go_on(index, contender.program.throw, failure)  # type: ignore[union-attr]

    def _go_on(self, index: int, resume: Callable[[Any], Any], told: Any) -> None:
        contender = self.contenders[index]
        performer.mint = contender.mint
        send = contender.program.send  # type: ignore[union-attr]
        try:
            effect = resume(told)
            while isinstance(effect, Cleanup):
                effect = send(self._perform(effect))
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
            assert contender.ask is not None
            contender.number = 0
            contender.grant = Grant(result, self.locks[index], contender.ask.grant_id)
            contender.ask = None
            contender.extended = not contender.plan.extend
            contender.leaves = self.now + contender.plan.stay
            self.holds.append(result)
        elif contender.phase != "extending":
            contender.ask = contender.grant = None
            contender.number, contender.leaves, contender.extended = 0, 0.0, False
        if contender.grant is not None:
            contender.phase = "inside"
        else:
            contender.phase = "new" if contender.schedule < contender.plan.schedule else "over"

    def _failed(self, index: int, failure: BaseException) -> None:
        contender = self.contenders[index]
        if not isinstance(failure, (LockBackendError, LockLost, asyncio.CancelledError, KeyboardInterrupt)):
            raise failure
        if contender.phase == "extending":  # his block goes on, or ends
            contender.phase = "inside"
            return
        contender.failure = failure
        ask, grant = contender.ask, contender.grant
        if ask is not None and ask.waiter is not None:
            contender.effect = LeaveQueue(ask.waiter, 0.0)
        elif grant is not None and grant.hold.state is State.RELEASING and not grant.hold.release_failed:
            contender.effect = NotifyWaiters(PLACE, False, grant.hold.address)
        else:
            self._clear_away(index)

    def _clear_away(self, index: int) -> None:
        contender, lock, failure = self.contenders[index], self.locks[index], self.contenders[index].failure
        assert failure is not None
        contender.effect = contender.failure = None
        try:
            if contender.ask is not None:
                lock._handle_failure(contender.ask, failure)
            elif contender.grant is not None:
                lock.clean_up_release(contender.grant, failure)
        except (type(failure), KeyboardInterrupt) as raised:
            failure = raised
        if contender.grant is not None and contender.plan.insists and isinstance(failure, LockBackendError):
            contender.phase = "inside"
            return
        contender.ask = contender.grant = None
        contender.number, contender.leaves, contender.extended = 0, 0.0, False
        contender.phase = "over"

    # What comes from outside.

    def _told(self, number: str) -> None:
        self.engine.on_message(number, KEYS.lock)

    def _deafen(self) -> None:
        """The connection of its inbox is lost."""
        self.deaf, self.backend.listening = True, False

    def _hear_again(self) -> None:
        self.deaf, self.backend.listening = False, True
        self.engine.on_reconnect()

    def cleanups(self) -> list[Any]:
        """What the janitor is about to send, the first one first."""
        return sorted(self.maintenance._cleanups._due, key=lambda errand: (errand[0], errand[2].name, errand[2].args))

    def _errand(self, index: int, reply: Any) -> None:
        """The janitor's request was answered, or not (None)."""
        cleanups = self.maintenance._cleanups
        due = self.cleanups()
        before = len(due)
        self.backend.reply = LockBackendError("no answer", outcome_unknown=True) if reply is None else reply
        cleanups._due = [due.pop(index)]
        cleanups.run(inf, inf)
        for errand in due:
            heapq.heappush(cleanups._due, errand)
        self.gave_up = reply is None and len(cleanups._due) < before

    def _time(self, passed: float) -> None:
        self.now = performer.now = self.now + passed

    # Sleep.

    def _doze(self, contender: Contender) -> None:
        """Whoever has no reason to be awake sleeps on."""
        if contender.until is None or contender.awake:
            return
        wait = contender.effect
        gate: Gate = wait.waiter.gate  # he sleeps at it
        if not (gate.opened or contender.until <= self.now):
            return
        queue, attempt = copy.copy(wait.waiter.queue), wait.waiter.attempt
        verdict = queue.attempt(wait.waiter, wait.until, self.engine)  # of a copy: nothing happens
        wait.waiter.attempt = attempt
        gate.opened = False
        if isinstance(verdict, float):
            contender.until = self.now + verdict
        else:
            contender.awake, contender.until = True, -inf

"""Exceptions of effects and of signal handlers are thrown into the program, which cleans up. The cleanup of
the real programs: tests/unit/primitives/test_interruptions.py."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
from collections.abc import Callable
from itertools import repeat
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from django_redis_locks.core.commands import Command, Effect, Program
from django_redis_locks.core.effects import NotifyWaiters
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.runner import arun, run, run_twice_if_interrupted
from django_redis_locks.core.steps.locks import ReleaseLock

COMMAND = Command("lock/release", ("lock", "index"), ReleaseLock("token"), bool)
LOCAL = NotifyWaiters(LockId("store", "lock"), passed_on=False)


class Raises:
    """A performer in which every effect raises this exception."""

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure
        self.handlers = dict.fromkeys([Command, NotifyWaiters], self._perform)
        self.ahandlers = {Command: self._aperform}

    def _perform(self, effect: Effect[Any]) -> Any:
        raise self._failure

    async def _aperform(self, effect: Effect[Any]) -> Any:
        raise self._failure


def run_as_task(program: Program[Any], performer: Any) -> Any:
    return asyncio.run(arun(program, performer))


both = pytest.mark.parametrize("drive", [run, run_as_task], ids=["sync", "async"])
Drive = Callable[[Program[Any], Any], Any]


@both
@pytest.mark.parametrize("effect", [LOCAL, COMMAND], ids=["local", "store"])
def test_StopIteration_of_an_effect_does_not_end_the_program(drive: Drive, effect: Effect[Any]) -> None:
    """A StopIteration of a user's parser or listener must not become the program's result, which might grant a lock."""
    received: list[BaseException] = []

    def program() -> Program[str]:
        try:
            yield from effect
        except BaseException as failure:
            received.append(failure)
            raise
        return "done"

    with pytest.raises(RuntimeError):
        drive(program(), Raises(StopIteration("granted")))
    assert len(received) == 1, "it was thrown into the program"


@both
def test_program_may_continue_after_StopIteration(drive: Drive) -> None:
    """Its return value is the result, also directly after the exception."""

    def program() -> Program[str]:
        try:
            yield LOCAL
        except StopIteration:
            return "went on"
        return "never"

    assert drive(program(), Raises(StopIteration("granted"))) == "went on"


def test_coroutine_that_is_closed_unwinds() -> None:
    """The garbage collector closes a task of a closed loop: the program still performs its local cleanup."""
    performed: list[Effect[Any]] = []

    async def for_ever(effect: Effect[Any]) -> None:
        await asyncio.Event().wait()

    def program() -> Program[None]:
        try:
            yield from COMMAND
        finally:
            yield from LOCAL

    performer: Any = SimpleNamespace(handlers={NotifyWaiters: performed.append}, ahandlers={Command: for_ever})
    coroutine = arun(program(), performer)
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    loop.call_soon(loop.stop)
    loop.run_forever()
    coroutine.close()
    assert performed == [LOCAL]
    task._log_destroy_pending = False
    loop.close()


class Interrupted(BaseException):
    """The exception of a signal handler."""


class NoEffects:
    """Performs nothing, without a line of Python in which a signal could be handled."""

    handlers: ClassVar[Any] = {type(None): {}.get}
    ahandlers = handlers


def test_signal_between_two_steps_is_thrown_into_the_program() -> None:
    """[L16] [E7] A program that isn't resumed can't clean up. Signals come at random points; each must be thrown into
    the program."""
    unwound = 0

    def program() -> Program[None]:
        nonlocal unwound
        try:
            yield from repeat(None)
        except Interrupted:
            unwound += 1
            raise

    def interrupt(*_: object) -> None:
        if aimed:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    missed = 0
    try:
        for number in range(400):
            endless = program()
            with contextlib.suppress(Interrupted):
                aimed = True
                # repeated in case Python ignores the first exception, as in a finalizer; not while that is handled
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + number * 1e-6, 1.0)
                run(endless, NoEffects)
            aimed = False
            missed += inspect.getgeneratorstate(endless) == inspect.GEN_SUSPENDED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert unwound > 200
    assert missed == 0


def test_run_twice_if_interrupted_completes_every_step_after_a_signal() -> None:
    """[L16] A signal at any step of a cleanup: all steps are done, and the exception of the signal is raised."""
    done: list[int] = []
    run_twice_if_interrupted(lambda: done.extend(range(3)))
    assert done == [0, 1, 2]
    for interrupt in range(3):
        done, signal = [], KeyboardInterrupt()

        def clean_up(interrupt: int = interrupt, done: list[int] = done, signal: BaseException = signal) -> None:
            for step in range(3):
                if step == interrupt and not done.count(-1):
                    done.append(-1)
                    raise signal
                done.append(step)

        with pytest.raises(KeyboardInterrupt) as caught:
            run_twice_if_interrupted(clean_up)
        assert caught.value is signal
        assert done[interrupt + 1 :] == [0, 1, 2]

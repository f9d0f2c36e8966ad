"""Whatever an effect raises, and wherever a signal strikes, the program hears of it, and clears up. What real programs do
then: tests/unit/primitives/test_interruptions.py."""

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

COMMAND = Command("lock/release", ("lock", "index"), ("token",), bool)
LOCAL = NotifyWaiters(LockId("store", "lock"), woke=False)


class Raises:
    """A world in which every effect fails with this, as far as a coroutine can."""

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
    """A StopIteration out of a user's parser or listener isn't the program's result: a lock would be granted by it."""
    heard: list[BaseException] = []

    def program() -> Program[str]:
        try:
            yield from effect
        except BaseException as failure:
            heard.append(failure)
            raise
        return "done"

    with pytest.raises(RuntimeError):
        drive(program(), Raises(StopIteration("granted")))
    assert len(heard) == 1, "it was thrown in"


@both
def test_program_may_go_on_after_StopIteration(drive: Drive) -> None:
    """Its own end is its result as ever, also in the moment in which it is told."""

    def program() -> Program[str]:
        try:
            yield LOCAL
        except StopIteration:
            return "went on"
        return "never"

    assert drive(program(), Raises(StopIteration("granted"))) == "went on"


def test_coroutine_that_is_closed_unwinds() -> None:
    """A task whose loop is gone is closed by the garbage collector: the program names what is left all the same."""
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


class Strike(BaseException):
    """What a signal handler raises."""


class Silent:
    """Performs nothing, without a single line of Python in which a signal could strike."""

    handlers: ClassVar[Any] = {type(None): {}.get}
    ahandlers = handlers


def test_signal_between_two_steps_is_thrown_into_the_program() -> None:
    """[L16] [E7] A program that is just dropped can't name what it leaves behind. The strikes hit where they please; not
    one may pass the program by."""
    unwound = 0

    def program() -> Program[None]:
        nonlocal unwound
        try:
            yield from repeat(None)
        except Strike:
            unwound += 1
            raise

    def strike(*_: object) -> None:
        if aimed:
            raise Strike

    before = signal.signal(signal.SIGALRM, strike)
    passed_by = 0
    try:
        for number in range(400):
            endless = program()
            with contextlib.suppress(Strike):
                aimed = True
                # once more, if the first one struck where Python swallows it, such as in a finalizer; not while it is handled
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + number * 1e-6, 1.0)
                run(endless, Silent)
            aimed = False
            passed_by += inspect.getgeneratorstate(endless) == inspect.GEN_SUSPENDED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert unwound > 200
    assert passed_by == 0


def test_surely_runs_each_step_once_more_after_a_signal() -> None:
    """[L16] A store that is down, and then a signal at any step of the clean-up: all of it is done, and the signal goes
    on."""
    done: list[int] = []
    run_twice_if_interrupted(lambda: done.extend(range(3)))
    assert done == [0, 1, 2]
    for strike in range(3):
        done, signal = [], KeyboardInterrupt()

        def clear_away(strike: int = strike, done: list[int] = done, signal: BaseException = signal) -> None:
            for step in range(3):
                if step == strike and not done.count(-1):
                    done.append(-1)
                    raise signal
                done.append(step)

        with pytest.raises(KeyboardInterrupt) as caught:
            run_twice_if_interrupted(clear_away)
        assert caught.value is signal
        assert done[strike + 1 :] == [0, 1, 2]

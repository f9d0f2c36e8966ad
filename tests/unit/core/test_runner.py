"""The two runners do the same: send replies, throw failures in, and let a program unwind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks.core import effects
from django_redis_locks.core.effects import Command, Effect, Leave, LineUp, Listen, Pause, Place, Program, Seat, Wait
from django_redis_locks.core.runner import arun, run, surely

SEAT = Seat(Place("store", "lock"), None, "inbox:")
COMMAND = Command("lock/free", ("lock", "index"), ("token",), bool)
LOOK = LineUp(SEAT.place, None)
"""Something local that has a reply."""

BLOCKING = [Command, Wait, Listen, Pause]
LOCAL = [LineUp, Leave]


class World:
    """Performs effects by a list of outcomes: replies, or exceptions to raise."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)
        self.handlers = dict.fromkeys([*BLOCKING, *LOCAL], self._perform)
        self.ahandlers = dict.fromkeys(BLOCKING, self._aperform)
        self.performed: list[Effect[Any]] = []
        self.awaited: list[Effect[Any]] = []

    def _perform(self, effect: Effect[Any]) -> Any:
        self.performed.append(effect)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _aperform(self, effect: Effect[Any]) -> Any:
        self.awaited.append(effect)
        await asyncio.sleep(0)
        return self._perform(effect)


def run_as_task(program: Program[Any], world: World) -> Any:
    return asyncio.run(arun(program, world))


both = pytest.mark.parametrize("drive", [run, run_as_task], ids=["sync", "async"])
Drive = Callable[[Program[Any], World], Any]


def story() -> Program[str]:
    """Waits and sends a command, and gives its seat up when that fails."""
    begin = yield from LOOK
    try:
        turn = yield from Wait(SEAT, begin + 1)
        reply = yield from COMMAND
    except BaseException:
        yield from Leave(SEAT)
        raise
    return f"{begin} {turn} {reply}"


@both
def test_replies_are_sent_back_and_the_result_is_returned(drive: Drive) -> None:
    """Each reply arrives at its own yield; what the program returns is the outcome."""
    world = World(5.0, True, False)
    assert drive(story(), world) == "5.0 True False"
    assert world.performed == [LOOK, Wait(SEAT, 6.0), COMMAND]


def test_both_runners_perform_the_same_effects() -> None:
    """One program, two worlds: the list of effects doesn't tell which; only those that may block are awaited."""
    outcomes = [5.0, True, OSError(), None]
    worlds = World(*outcomes), World(*outcomes)
    for drive, world in zip((run, run_as_task), worlds, strict=True):
        with pytest.raises(OSError):  # noqa: PT011 - this very one, which has no text
            drive(story(), world)
    assert worlds[0].performed == worlds[1].performed
    assert worlds[0].awaited == []
    assert worlds[1].awaited == [Wait(SEAT, 6.0), COMMAND]
    assert not any(effect.local for effect in worlds[1].awaited)


@both
def test_failure_is_thrown_into_the_program_which_unwinds(drive: Drive) -> None:
    """[X2] Whatever interrupts an effect, the program names what is left, and the very error goes on."""
    for failure in (OSError("down"), KeyboardInterrupt(), SystemExit(1), MemoryError()):
        world = World(5.0, True, failure, None)
        with pytest.raises(type(failure)) as caught:
            drive(story(), world)
        assert caught.value is failure
        assert world.performed[-1] == Leave(SEAT)
        begun = World(failure)
        with pytest.raises(type(failure)):
            drive(story(), begun)
        assert begun.performed == [LOOK], "nothing was begun, so nothing is left behind"


@both
def test_program_may_go_on_after_a_failure(drive: Drive) -> None:
    """A failure that the program understands is a reply like any other."""

    def retrying() -> Program[str]:
        for _ in range(3):
            try:
                return (yield from COMMAND)
            except OSError:
                yield from Pause(0.1)
        return "never"

    world = World(OSError(), None, OSError(), None, "at last")
    assert drive(retrying(), world) == "at last"
    assert world.performed == [COMMAND, Pause(0.1), COMMAND, Pause(0.1), COMMAND]


@both
def test_error_of_the_program_itself_is_raised_once(drive: Drive) -> None:
    """It isn't thrown into the program that raised it, and nothing more is performed."""
    seen: list[BaseException] = []

    def failing() -> Program[None]:
        yield from LOOK
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            seen.append(error)
            raise

    world = World(5.0)
    with pytest.raises(ZeroDivisionError) as caught:
        drive(failing(), world)
    assert seen == [caught.value]
    assert world.performed == [LOOK]


@both
def test_failure_while_unwinding_replaces_the_first(drive: Drive) -> None:
    """The later error goes on, and tells the earlier one as its context."""
    first, second = OSError("first"), KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        drive(story(), World(5.0, True, first, second))
    assert caught.value is second
    assert second.__context__ is first


class Asleep(World):
    """Never comes back from what may block."""

    async def _aperform(self, effect: Effect[Any]) -> Any:
        self.awaited.append(effect)
        await asyncio.Event().wait()


def test_cancelled_task_unwinds_without_awaiting() -> None:
    """[L16] Cancellation is thrown in; the clean-up is local, so a second one can't cut it short."""

    async def main(world: Asleep) -> None:
        task = asyncio.create_task(arun(story(), world))
        await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    world = Asleep(5.0, None)
    asyncio.run(main(world))
    assert world.performed == [LOOK, Leave(SEAT)]
    assert world.awaited == [Wait(SEAT, 6.0)]


def test_coroutine_that_is_closed_unwinds() -> None:
    """A task whose loop is gone is closed by the garbage collector: its seat is given up all the same."""
    world = Asleep(5.0, None)
    coroutine = arun(story(), world)
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert world.awaited == [Wait(SEAT, 6.0)]
    coroutine.close()
    assert world.performed == [LOOK, Leave(SEAT)]
    task._log_destroy_pending = False
    loop.close()


def test_only_commands_and_sleeps_may_block() -> None:
    """[F25] Everything else is local: a program may ask for it while it unwinds."""
    kinds = {kind for kind in vars(effects).values() if isinstance(kind, type) and issubclass(kind, Effect)}
    assert {kind for kind in kinds if not kind.local} == {Command, Wait, Listen, Pause}
    assert len(kinds) > 9


def test_surely_runs_each_step_once_more_after_a_signal() -> None:
    """[L16] A store that is down, and then a signal at any step of the clean-up: all of it is done, and the signal goes
    on."""
    done: list[int] = []
    surely(lambda: done.extend(range(3)))
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
            surely(clear_away)
        assert caught.value is signal
        assert done[strike + 1 :] == [0, 1, 2]

"""The two runners: all the difference between the synchronous and the asynchronous world.

A failure of an effect, whatever it is (a lost connection, KeyboardInterrupt, a cancelled task, a soft time limit), is
thrown into the program, which may go on, or name what is left behind and let it pass.

A ``StopIteration`` ends the program only if it is the program's: one that an effect raises finds the program suspended.
The inner loops stand inside of the ``try``, so that a signal that strikes between two steps is thrown in as well.
"""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from .commands import Program
    from .effects import Performer

R = TypeVar("R")


def run(program: Program[R], performer: Performer) -> R:
    """Drive a program to its end in this thread and return its result."""
    reply: Any = None
    handlers = performer.handlers
    failures: list[BaseException] = []  # popped when it is thrown: a frame and an error that know each other stay
    while True:
        try:
            while True:
                effect = program.throw(failures.pop()) if failures else program.send(reply)
                reply = handlers[type(effect)](effect)
        except StopIteration as done:
            if program.gi_frame is None:  # type: ignore[attr-defined]
                return done.value  # type: ignore[no-any-return]
            failures.append(done)
        except BaseException as error:
            if getgeneratorstate(program) == GEN_CLOSED:
                raise
            failures.append(error)


async def arun(program: Program[R], performer: Performer) -> R:
    """Drive a program to its end in this task and return its result."""
    reply: Any = None
    handlers, ahandlers = performer.handlers, performer.ahandlers
    failures: list[BaseException] = []  # popped when it is thrown: a frame and an error that know each other stay
    while True:
        try:
            while True:
                effect = program.throw(failures.pop()) if failures else program.send(reply)
                kind = type(effect)
                reply = handlers[kind](effect) if effect.local else await ahandlers[kind](effect)
        except StopIteration as done:
            if program.gi_frame is None:  # type: ignore[attr-defined]
                return done.value  # type: ignore[no-any-return]
            failures.append(done)
        except BaseException as error:
            if getgeneratorstate(program) == GEN_CLOSED:
                raise
            failures.append(error)


def run_twice_if_interrupted(clear_away: Callable[[], object]) -> None:
    """Do what is left to be done after a failure. If an exception strikes meanwhile it is done once more, so that each of
    its steps may be done twice."""
    try:
        clear_away()
    except BaseException:
        clear_away()
        raise

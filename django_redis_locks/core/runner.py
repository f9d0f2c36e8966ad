"""The two runners: all the difference between the synchronous and the asynchronous world.

A failure of an effect, whatever it is (a lost connection, KeyboardInterrupt, a cancelled task, a soft time limit), is
thrown into the program, which may go on, or name what is left behind and let it pass.
"""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .effects import Performer, Program

R = TypeVar("R")


def run(program: Program[R], world: Performer) -> R:
    """Drive a program to its end in this thread and return its result."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            if failure is None:
                effect = program.send(reply)
            else:
                thrown, failure = failure, None
                effect = program.throw(thrown)
            reply = world.perform(effect)
        except StopIteration as done:
            return cast("R", done.value)
        except BaseException as error:
            if getgeneratorstate(program) == GEN_CLOSED:
                raise
            failure = error


async def arun(program: Program[R], world: Performer) -> R:
    """Drive a program to its end in this task and return its result."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            if failure is None:
                effect = program.send(reply)
            else:
                thrown, failure = failure, None
                effect = program.throw(thrown)
            reply = world.perform(effect) if effect.local else await world.aperform(effect)
        except StopIteration as done:
            return cast("R", done.value)
        except BaseException as error:
            if getgeneratorstate(program) == GEN_CLOSED:
                raise
            failure = error

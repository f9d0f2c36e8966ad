"""The two runners of programs, for synchronous and for asynchronous callers.

Any exception during an effect (a lost connection, KeyboardInterrupt, a cancelled task, a soft time limit) is thrown
into the program, which may continue, or clean up and let the exception propagate.

A ``StopIteration`` ends the run only if the program itself has ended; one that an effect raised is thrown into the
program, too. The inner loops are inside the ``try``, so that an exception of a signal handler between two steps is also
thrown into the program.
"""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from .commands import Program
    from .effects import EffectPerformer

R = TypeVar("R")


def run(program: Program[R], performer: EffectPerformer) -> R:
    """Run a program to its end in this thread and return its result."""
    reply: Any = None
    handlers = performer.handlers
    failures: list[BaseException] = []  # emptied by each throw: an error and its frame would form a cycle
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


async def arun(program: Program[R], performer: EffectPerformer) -> R:
    """Run a program to its end in this task and return its result."""
    reply: Any = None
    handlers, ahandlers = performer.handlers, performer.ahandlers
    failures: list[BaseException] = []  # emptied by each throw: an error and its frame would form a cycle
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


def run_twice_if_interrupted(clean_up: Callable[[], object]) -> None:
    """Run a cleanup, and once more if an exception interrupts it. Each of its steps must be repeatable."""
    try:
        clean_up()
    except BaseException:
        clean_up()
        raise

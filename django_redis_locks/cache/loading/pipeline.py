"""Runs several programs side by side, and sends the commands that they yield together in one write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...core.commands import Command
from .effects import SendCommands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.commands import Effect, Program

R = TypeVar("R")


def run_pipelined(programs: Sequence[Program[R]]) -> Program[list[R | Exception]]:
    """Return the result of each program, or the ``Exception`` that it raised. Any other ``BaseException`` of one
    program interrupts all."""
    runs = [_PipelinedProgram(program) for program in programs]
    try:
        for run in runs:
            run.resume(None)
        while unfinished := [run for run in runs if run.effect is not None]:
            with_command = [run for run in unfinished if isinstance(run.effect, Command)]
            if with_command:
                replies = yield SendCommands([run.effect for run in with_command])  # type: ignore[misc]
                for run, reply in zip(with_command, replies, strict=True):
                    run.resume(reply)
            for run in unfinished:
                if run not in with_command and run.effect is not None:
                    yield from run.perform_alone()
    except GeneratorExit:
        raise
    except BaseException as interruption:
        for run in runs:
            yield from run.unwind(interruption)
        raise
    return [run.result for run in runs]


class _PipelinedProgram(Generic[R]):
    """One of the programs: the effect that it waits for, or its result if it has ended."""

    def __init__(self, program: Program[R]) -> None:
        self.effect: Effect[Any] | None = None
        self.result: Any = None
        self._program = program

    def resume(self, reply: Any) -> None:
        """Continue the program with a reply; an exception is raised in it."""
        self.effect = None
        try:
            self.effect = self._program.throw(reply) if isinstance(reply, Exception) else self._program.send(reply)
        except StopIteration as done:
            self.result = done.value
        except Exception as error:  # noqa: BLE001 - it is the program's result
            self.result = error

    def perform_alone(self) -> Program[None]:
        """Perform an effect that isn't a command."""
        assert self.effect is not None  # noqa: S101 - called only while an effect is due
        try:
            reply = yield self.effect
        except Exception as error:  # noqa: BLE001 - raised in the program
            reply = error
        self.resume(reply)

    def unwind(self, interruption: BaseException) -> Program[None]:
        """Interrupt the program, and perform the effects of its cleanup."""
        if self.effect is None:
            return
        try:
            effect = self._program.throw(interruption)
            while True:
                effect = self._program.send((yield effect))
        except BaseException:  # noqa: BLE001 - usually the interruption itself
            self.effect = None

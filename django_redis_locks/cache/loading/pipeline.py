"""Several programs side by side: what all of them ask the store goes there in one write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...core.commands import Command
from .effects import SendCommands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.commands import Effect, Program

R = TypeVar("R")


def run_pipelined(programs: Sequence[Program[R]]) -> Program[list[R | Exception]]:
    """The result of each program, or what it raised. What interrupts one interrupts all."""
    strands = [_PipelinedProgram(program) for program in programs]
    try:
        for strand in strands:
            strand.resume(None)
        while asking := [strand for strand in strands if strand.effect is not None]:
            commands = [strand for strand in asking if isinstance(strand.effect, Command)]
            if commands:
                replies = yield SendCommands([strand.effect for strand in commands])  # type: ignore[misc]
                for strand, reply in zip(commands, replies, strict=True):
                    strand.resume(reply)
            for strand in asking:
                if strand not in commands and strand.effect is not None:
                    yield from strand.perform_alone()
    except GeneratorExit:
        raise
    except BaseException as interruption:
        for strand in strands:
            yield from strand.unwind(interruption)
        raise
    return [strand.result for strand in strands]


class _PipelinedProgram(Generic[R]):
    """One of the programs: what it asks for now, if it goes on, and its result otherwise."""

    def __init__(self, program: Program[R]) -> None:
        self.effect: Effect[Any] | None = None
        self.result: Any = None
        self._program = program

    def resume(self, reply: Any) -> None:
        """With this reply, or this failure."""
        self.effect = None
        try:
            self.effect = self._program.throw(reply) if isinstance(reply, Exception) else self._program.send(reply)
        except StopIteration as done:
            self.result = done.value
        except Exception as error:  # noqa: BLE001 - it is the program's result
            self.result = error

    def perform_alone(self) -> Program[None]:
        """What it asks for isn't the store's to answer."""
        assert self.effect is not None  # noqa: S101 - else nobody asks
        try:
            reply = yield self.effect
        except Exception as error:  # noqa: BLE001 - it is for this program
            reply = error
        self.resume(reply)

    def unwind(self, interruption: BaseException) -> Program[None]:
        """What a program asks for while it unwinds ends at once."""
        if self.effect is None:
            return
        try:
            effect = self._program.throw(interruption)
            while True:
                effect = self._program.send((yield effect))
        except BaseException:  # noqa: BLE001 - the interruption itself, as a rule
            self.effect = None

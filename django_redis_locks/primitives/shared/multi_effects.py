"""The effects of the programs of several locks, which may be in several stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...core.commands import Effect
from ...core.runner import arun, run

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.effects import Handlers, Performer
    from ...core.grant import Grant


class RunAt(Effect[Any]):
    """Run a program at the store of one of the locks. Returns its result."""

    local: ClassVar[bool] = False

    __slots__ = ("performer", "program")

    def __init__(self, program: Program[Any], performer: Performer) -> None:
        self.program = program
        self.performer = performer


class ReleaseOne(Effect[None]):
    """Release the grant of one of the locks, as its lock does."""

    local: ClassVar[bool] = False

    __slots__ = ("grant",)

    def __init__(self, grant: Grant) -> None:
        self.grant = grant


class MultiPerformer:
    """Performs these effects."""

    handlers: ClassVar[Handlers] = {
        RunAt: lambda effect: run(effect.program, effect.performer),
        ReleaseOne: lambda effect: effect.grant.release(),
    }
    ahandlers: ClassVar[Handlers] = {
        RunAt: lambda effect: arun(effect.program, effect.performer),
        ReleaseOne: lambda effect: effect.grant.arelease(),
    }


PERFORMER: Final = MultiPerformer()
"""The performer of all multi locks."""

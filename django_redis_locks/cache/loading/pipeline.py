"""Runs the programs of many keys side by side. Effects of one kind that they wait for together are performed as one:
their commands in one write, their reads in one read, their loaders in one call."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.commands import Command
from ...core.effects import SendCommands
from ..results import MISSING
from .effects import CallLoader, Fetch, FetchMany

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.commands import Program


def run_side_by_side(programs: Mapping[str, Program[None]], loader: Callable[..., Any]) -> Program[None]:
    """Run the programs of many keys. An exception that one of them raises interrupts all.

    Args:
        programs: the program of each key.
        loader: takes a list of keys, and returns a mapping. It is called instead of the loaders of single keys.
    """
    runs = [_Run(key, program) for key, program in programs.items()]
    try:
        for run in runs:
            run.resume(None)
        while waiting := [run for run in runs if run.effect is not None]:
            yield from _perform_next(waiting, loader)
    except GeneratorExit:
        raise
    except BaseException as interruption:
        for run in runs:
            yield from run.unwind(interruption)
        raise


def _perform_next(runs: list[_Run], loader: Callable[..., Any]) -> Program[None]:
    """Perform the effects of one kind. Loaders come last, so that all keys are loaded by one call."""
    by_kind: dict[type[Any], list[_Run]] = {}
    for run in runs:
        by_kind.setdefault(type(run.effect), []).append(run)
    if Command in by_kind:
        yield from _send_all(by_kind[Command])
    elif others := [run for run in runs if type(run.effect) not in (Fetch, FetchMany, CallLoader)]:
        for run in others:
            yield from run.perform()
    elif Fetch in by_kind:
        yield from _read_all(by_kind[Fetch])
    elif FetchMany in by_kind:
        yield from _read_all_groups(by_kind[FetchMany])
    else:
        yield from _call_loader(by_kind[CallLoader], loader)


class _Run:
    """One of the programs: the effect that it waits for, or None if it has ended."""

    def __init__(self, key: str, program: Program[None]) -> None:
        self.key = key
        self.effect: Any = None
        self._program = program

    def resume(self, reply: Any) -> None:
        """Continue the program with the result of its effect."""
        self.effect = None
        with suppress(StopIteration):
            self.effect = self._program.send(reply)

    def fail(self, error: Exception) -> None:
        """Raise the error of its effect in the program."""
        self.effect = None
        with suppress(StopIteration):
            self.effect = self._program.throw(error)

    def perform(self) -> Program[None]:
        """Perform an effect that isn't shared with other programs."""
        try:
            reply = yield self.effect
        except Exception as error:  # noqa: BLE001 - raised in the program
            self.fail(error)
        else:
            self.resume(reply)

    def unwind(self, interruption: BaseException) -> Program[None]:
        """Interrupt the program, and perform the effects of its cleanup."""
        if self._program.gi_frame is None:  # type: ignore[attr-defined]
            return  # it has ended
        try:
            effect = self._program.throw(interruption)
            while True:
                effect = self._program.send((yield effect))
        except BaseException:  # noqa: BLE001 - usually the interruption itself
            self.effect = None


def _send_all(runs: Sequence[_Run]) -> Program[None]:
    replies = yield SendCommands([run.effect for run in runs])
    for run, reply in zip(runs, replies, strict=True):
        if isinstance(reply, Exception):
            run.fail(reply)
        else:
            run.resume(reply)


def _read_all(runs: Sequence[_Run]) -> Program[None]:
    fetches: list[Fetch] = [run.effect for run in runs]
    try:
        found = yield FetchMany({fetch.key: fetch.stored_key for fetch in fetches}, fetches[0].version)
    except Exception as error:  # noqa: BLE001 - raised in each program
        _fail_all(runs, error)
    else:
        for run, fetch in zip(runs, fetches, strict=True):
            run.resume(found.get(fetch.key, MISSING))


def _read_all_groups(runs: Sequence[_Run]) -> Program[None]:
    """Read values with the stamps of their groups."""
    keys = {key: stored_key for run in runs for key, stored_key in run.effect.keys.items()}
    try:
        found = yield FetchMany(keys, runs[0].effect.version)
    except Exception as error:  # noqa: BLE001 - raised in each program
        _fail_all(runs, error)
    else:
        for run in runs:
            run.resume(found)


def _call_loader(runs: Sequence[_Run], loader: Callable[..., Any]) -> Program[None]:
    keys = [run.key for run in runs]
    loads = [load for run in runs for load in run.effect.loads]
    loads.append((loads[0][0], None))  # so that none of them is the current one
    try:
        loaded = yield CallLoader(loader, (keys,), tuple(loads))
        values = [loaded.get(key) for key in keys]
    except Exception as error:  # noqa: BLE001 - raised in each program
        _fail_all(runs, error)
    else:
        for run, value in zip(runs, values, strict=True):
            run.resume(value)


def _fail_all(runs: Sequence[_Run], error: Exception) -> None:
    for run in runs:
        run.fail(error)

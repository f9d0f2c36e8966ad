"""Reads and raises the fence counters, as a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...core.commands import Command
from ...core.replies import parse_array, parse_int
from ...core.server_info import FenceCounter
from ...core.steps.locks import RaiseFence
from .retry import retry_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.commands import Program

LARGEST_FENCE: Final = 2**52
"""The clock reaches it in the year 2112. Beyond twice this number Lua, and many databases, can't represent each integer
exactly."""


def raising(counters: Sequence[str], least: int) -> Program[list[FenceCounter]]:
    """Raise each of these counters to ``least`` if it is below; 0 changes nothing.

    Raises:
        ValueError: ``least`` isn't a fence.
    """
    if type(least) is not int or not 0 <= least <= LARGEST_FENCE:
        raise ValueError(f"a fence is a whole number from 0 to {LARGEST_FENCE}, not {least!r}")
    commands = [Command("fence/raise", (counter,), RaiseFence(least), _parse) for counter in counters]
    replies = yield from retry_commands(commands)
    return [FenceCounter(bucket, last, clock) for bucket, (last, clock) in enumerate(replies)]


def _parse(reply: Any) -> tuple[int, int]:
    last, clock = parse_array(reply)
    return parse_int(last), parse_int(clock)

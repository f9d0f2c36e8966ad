"""Commands of a cache that don't belong to one load: read values without a claim, block loads during a write, clear the
cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...core.commands import Command
from ...core.replies import parse_array, parse_bool, parse_int, parse_text
from ...core.steps.loads import BlockLoads, ClearLoads, GetValue, ReadValues, UnblockLoads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..load import LoadLease

WRITER_PREFIX: Final = "w:"
"""The prefix of the token of a writer. If two writers overlap, neither ends the block of the other."""


def read_command(values: tuple[str, ...]) -> Command[list[tuple[int, Any]]]:
    """Read values, each with the milliseconds until it expires; -1: never, -2: there is no value."""
    return Command("load/read", values, ReadValues(), _parse_values)


def read_one_command(value: str, *, with_lifetime: bool) -> Command[tuple[int, Any]]:
    """Read one value; without its lifetime by a plain GET, because a script copies the value once more."""
    if with_lifetime:
        return Command("load/read", (value,), ReadValues(), _parse_only_value)
    return Command("load/get", (value,), GetValue(), _parse_value)


def block_command(loads: Sequence[LoadLease], token: str, lease: int) -> Command[bool]:
    """Void all claims of these loads, which belong to one cache, and block new claims. Then their values can be written
    by other means."""
    return Command(
        "load/block",
        (loads[0].keys.generation, *(key for load in loads for key in (load.keys.lease, load.keys.permit))),
        BlockLoads(WRITER_PREFIX + token, lease),
        parse_bool,
    )


def unblock_command(loads: Sequence[LoadLease], token: str) -> Command[bool]:
    """End the block of ``block_command`` with this token."""
    keys = [key for load in loads for key in (load.keys.lease, load.keys.waiters, load.keys.permit)]
    args = UnblockLoads(WRITER_PREFIX + token)
    return Command("load/unblock", (loads[0].keys.generation, *keys), args, parse_bool)


def clear_command(generation: str) -> Command[str]:
    """Start a new generation. The value of a load from an earlier generation isn't stored."""
    return Command("load/clear", (generation,), ClearLoads(), parse_text)


def _parse_value(reply: Any) -> tuple[int, Any]:
    if reply is not None and not isinstance(reply, bytes):
        raise ValueError(reply)
    return (-2 if reply is None else -1), reply


def _parse_only_value(reply: Any) -> tuple[int, Any]:
    (value,) = _parse_values(reply)
    return value


def _parse_values(reply: Any) -> list[tuple[int, Any]]:
    found = parse_array(reply)
    return [(parse_int(found[at]), found[at + 1]) for at in range(0, len(found), 2)]

"""Commands of a cache beyond those of one load: read values without a claim, block loads for a writer, clear a
cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...core.commands import Command
from ...core.replies import parse_array, parse_bool, parse_int, parse_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..load import LoadLease

WRITER_PREFIX: Final = "w:"
"""Prefix of the token of a writer that doesn't load. Two writers may overlap: neither ends the block of the other."""


def read_command(values: tuple[str, ...]) -> Command[list[tuple[int, Any]]]:
    """Read values, each with its remaining lifetime in milliseconds: -1 no expiry, -2 there is none."""
    return Command("load/read", values, (), _parse_values)


def get_command(value: str) -> Command[Any]:
    """Read one value without its lifetime, by a plain GET, which copies a long value once less than a script."""
    return Command("load/get", (value,), (), _parse_value)


def block_command(loads: Sequence[LoadLease], token: str, lease: int) -> Command[bool]:
    """Void all claims of these loads of one cache and block new ones, so that their values may be written by other
    means."""
    return Command(
        "load/block",
        (loads[0].keys.generation, *(key for load in loads for key in (load.keys.lease, load.keys.permit))),
        (WRITER_PREFIX + token, lease),
        parse_bool,
    )


def unblock_command(loads: Sequence[LoadLease], token: str) -> Command[bool]:
    """End what ``block_command`` began with this token."""
    keys = [key for load in loads for key in (load.keys.lease, load.keys.waiters, load.keys.permit)]
    return Command("load/unblock", (loads[0].keys.generation, *keys), (WRITER_PREFIX + token,), parse_bool)


def clear_command(generation: str) -> Command[str]:
    """Start a new generation: no load of an earlier one is stored."""
    return Command("load/clear", (generation,), (), parse_text)


def _parse_value(reply: Any) -> Any:
    if reply is not None and not isinstance(reply, bytes):
        raise ValueError(reply)
    return reply


def _parse_values(reply: Any) -> list[tuple[int, Any]]:
    found = parse_array(reply)
    return [(parse_int(found[at]), found[at + 1]) for at in range(0, len(found), 2)]

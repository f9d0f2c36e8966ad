"""Commands of caches beside those of one load: values are read without a claim, writers void claims, a cache is cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...core.commands import Command
from ...core.replies import parse_array, parse_bool, parse_int, parse_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..load import LoadLease

WRITER_PREFIX: Final = "w:"
"""Begins the token of a writer that doesn't load. Two of them may overlap: neither gives back what is the other's."""


def read_command(values: tuple[str, ...]) -> Command[list[tuple[int, Any]]]:
    """Read values as the store has them, each with the milliseconds that it has left: -1 for ever, -2 there is none."""
    return Command("load/read", values, (), _parse_values)


def get_command(value: str) -> Command[Any]:
    """Read one value, whatever it has left: the server's own command, which copies a long value once less."""
    return Command("load/get", (value,), (), _parse_value)


def block_command(loads: Sequence[LoadLease], token: str, lease: int) -> Command[bool]:
    """Take these loads of one cache from whoever has them, so that their values may be written by other means."""
    return Command(
        "load/block",
        (loads[0].keys.generation, *(key for load in loads for key in (load.keys.lease, load.keys.permit))),
        (WRITER_PREFIX + token, lease),
        parse_bool,
    )


def unblock_command(loads: Sequence[LoadLease], token: str) -> Command[bool]:
    """Give them back."""
    keys = [key for load in loads for key in (load.keys.lease, load.keys.waiters, load.keys.permit)]
    return Command("load/unblock", (loads[0].keys.generation, *keys), (WRITER_PREFIX + token,), parse_bool)


def clear_command(generation: str) -> Command[str]:
    """Begin a new generation: no load that began before will be stored."""
    return Command("load/clear", (generation,), (), parse_text)


def _parse_value(reply: Any) -> Any:
    if reply is not None and not isinstance(reply, bytes):
        raise ValueError(reply)
    return reply


def _parse_values(reply: Any) -> list[tuple[int, Any]]:
    found = parse_array(reply)
    return [(parse_int(found[at]), found[at + 1]) for at in range(0, len(found), 2)]

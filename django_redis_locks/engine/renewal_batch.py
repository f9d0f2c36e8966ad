"""Renews many holds with few commands. A command for each hold would cost this process more time than the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import LockBackendError
from ..core.replies import parse_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.base import Backend
    from ..core.commands import Command

MAX_HOLDS = 100
"""The largest number of holds in one command: some tenths of a millisecond of the server's time."""


def renew(renewals: Sequence[Command[bool]], backend: Backend, timeout: float) -> list[Any]:
    """Send renewals in one write. Those that can be merged share a command: they are of one step, with the same lease
    and the same index, in one part of the store.

    Args:
        renewals: the renewal command of each hold.
        backend: the backend that sends them.
        timeout: seconds to wait for replies.

    Returns:
        For each hold whether the store still has it, or its ``LockBackendError``.
    """
    groups: dict[Any, list[int]] = {}
    for number, renewal in enumerate(renewals):
        own, keys = renewal.own_keys, renewal.keys
        group = (renewal.name, renewal.args[:-1], keys[own:], backend.together(keys)) if own else number
        groups.setdefault(group, []).append(number)
    batches = [
        numbers[begin : begin + MAX_HOLDS] for numbers in groups.values() for begin in range(0, len(numbers), MAX_HOLDS)
    ]
    commands = [_merged([renewals[number] for number in batch]) for batch in batches]
    results: list[Any] = [None] * len(renewals)
    for command, batch, reply in zip(commands, batches, backend.call_many(commands, timeout), strict=True):
        held: Any = reply
        if not isinstance(reply, LockBackendError):
            try:
                held = command.read(reply)
            except LockBackendError as error:
                held = error
        for position, number in enumerate(batch):
            results[number] = held[position] if isinstance(held, list) else held
    return results


def _merged(renewals: list[Command[bool]]) -> Command[Any]:
    """Merge renewals of one group. The result is a list in the same order, or that of the only one."""
    first = renewals[0]
    if len(renewals) == 1:
        return first
    own = first.own_keys
    keys = [key for renewal in renewals for key in renewal.keys[:own]]
    values = tuple(value for renewal in renewals for value in renewal.args[-1])

    def parse(reply: Any) -> list[bool]:
        found = parse_array(reply)
        if len(found) != len(renewals):
            raise ValueError(reply)
        return [first.parse([result]) for result in found]

    args = type(first.args)(*first.args[:-1], values)
    return replace(first, keys=(*keys, *first.keys[own:]), args=args, parse=parse)  # type: ignore[arg-type]

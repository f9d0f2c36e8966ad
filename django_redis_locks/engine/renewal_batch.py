"""Renews many locks with few commands. A command for each lock would cost this process more time than the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.errors import LockBackendError
from ..primitives.shared.mutex_steps import merged_renewal, renewal_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.base import Backend
    from ..core.commands import Command

MAX_LOCKS = 100
"""The largest number of locks in one command: some tenths of a millisecond of the server's time."""


def renew(renewals: Sequence[Command[bool]], backend: Backend, timeout: float) -> list[Any]:
    """Send renewals in one write. Locks with the same lease and the same index share a command.

    Args:
        prolongs: the renewal command of each hold.
        backend: the backend that sends them.
        timeout: seconds to wait for replies.

    Returns:
        For each hold whether it still has the lock, or its ``LockBackendError``.
    """
    groups: dict[Any, list[int]] = {}
    commands: list[Command[Any]] = []
    batches: list[list[int]] = []  # for each command, the indexes of its holds
    for number, renewal in enumerate(renewals):
        group = renewal_group(renewal)
        if group is None:
            commands.append(renewal)
            batches.append([number])
        else:
            groups.setdefault(group, []).append(number)
    for numbers in groups.values():
        for begin in range(0, len(numbers), MAX_LOCKS):
            batch = numbers[begin : begin + MAX_LOCKS]
            commands.append(merged_renewal([renewals[number] for number in batch]))
            batches.append(batch)
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

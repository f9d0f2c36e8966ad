"""Renews many locks in few commands: one request each would cost this process more than the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.errors import LockBackendError
from ..primitives.lock import merged_renewal, renewal_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.base import Backend
    from ..core.commands import Command

MAX_LOCKS = 100
"""The locks in one command: some tenths of a millisecond of the server's time."""


def renew(prolongs: Sequence[Command[bool]], backend: Backend, timeout: float) -> list[Any]:
    """Send renewals in one write. Locks with the same lease and the same index share a command.

    Args:
        prolongs: one command per hold.
        backend: where to send them.
        timeout: seconds to wait for replies.

    Returns:
        For each hold whether it still has the lock, or its ``LockBackendError``.
    """
    groups: dict[Any, list[int]] = {}
    commands: list[Command[Any]] = []
    owners: list[list[int]] = []
    for number, prolong in enumerate(prolongs):
        group = renewal_group(prolong)
        if group is None:
            commands.append(prolong)
            owners.append([number])
        else:
            groups.setdefault(group, []).append(number)
    for numbers in groups.values():
        for begin in range(0, len(numbers), MAX_LOCKS):
            some = numbers[begin : begin + MAX_LOCKS]
            commands.append(merged_renewal([prolongs[number] for number in some]))
            owners.append(some)
    answers: list[Any] = [None] * len(prolongs)
    for command, some, reply in zip(commands, owners, backend.call_many(commands, timeout), strict=True):
        held: Any = reply
        if not isinstance(reply, LockBackendError):
            try:
                held = command.read(reply)
            except LockBackendError as error:
                held = error
        for lock_id, number in enumerate(some):
            answers[number] = held[lock_id] if isinstance(held, list) else held
    return answers

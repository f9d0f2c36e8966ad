"""Renewals of many locks in few commands: one request each would cost us more than the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.effects import Command
from ..core.errors import LockBackendError
from ..core.replies import members, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.base import Backend

MOST = 100
"""Locks in one command: some tenths of a millisecond of the server's time."""


def renew(prolongs: Sequence[Command[bool]], backend: Backend, timeout: float) -> list[Any]:
    """Carry these commands out, with one write; silence lasts ``timeout`` seconds at most. Locks that are renewed for the
    same time, and listed in the same index, go together.

    Returns:
        Of each whether it is still ours, or the error.
    """
    groups: dict[Any, list[int]] = {}
    commands: list[Command[Any]] = []
    owners: list[list[int]] = []
    for number, prolong in enumerate(prolongs):
        if prolong.name == "lock/renew":
            lock, *index = prolong.keys
            what = prolong.args[0], index[0] if index else lock.partition("}")[0]
            groups.setdefault(what, []).append(number)
        else:
            commands.append(prolong)
            owners.append([number])
    for numbers in groups.values():
        for begin in range(0, len(numbers), MOST):
            some = numbers[begin : begin + MOST]
            commands.append(_together([prolongs[number] for number in some]))
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


def _together(prolongs: list[Command[bool]]) -> Command[list[bool]]:
    first = prolongs[0]
    keys = [prolong.keys[0] for prolong in prolongs]
    tokens = [prolong.args[1] for prolong in prolongs]
    return Command("lock/renew", (*keys, *first.keys[1:]), (first.args[0], *tokens), _each)


def _each(reply: Any) -> list[bool]:
    return [yes_or_no(answer) for answer in members(reply)]

"""Asks the store at once about the holds of one lock in this process: it was freed by force, or somebody wants to know its fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core.errors import LockBackendError
from .core.hold import Hold, State
from .core.owners import registry

if TYPE_CHECKING:
    from .backends.base import Backend
    from .core.effects import Command, Place
    from .core.rounds import Rounds


def gone(place: Place, rounds: Rounds, backend: Backend, timeout: float) -> list[Hold]:
    """Write the fence of the hold that there is, and return those that the store doesn't know any more. Silence lasts
    ``timeout`` seconds at most, and says nothing of them: the next renewal will."""
    asked: dict[Hold, Command[bool]] = {hold: lease.prolong(hold.token, 1) for hold, lease in rounds.at(place)}
    for grant in registry.at(place):
        asked[grant.hold] = grant._keeper._telling(grant.hold)(grant.hold.token, 1)
    for hold in list(asked):
        hold.spare = 0  # before its state is looked at: from now on the next hold asks the store
        if hold.state is not State.HELD or hold.over or hold.fence is None:
            del asked[hold]
    replies = backend.call_many(list(asked.values()), timeout) if asked else []
    return [hold for (hold, command), reply in zip(asked.items(), replies, strict=True) if _denied(command, reply)]


def _denied(command: Command[bool], reply: object) -> bool:
    try:
        return not isinstance(reply, LockBackendError) and not command.read(reply)
    except LockBackendError:
        return False

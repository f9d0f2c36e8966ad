"""The mutex: one holder at a time, across threads, tasks, processes and hosts.

``rlock`` is the same lock: re-entry is counted in the process, so that both exclude each other and the steps in the
store are the same three. Each is idempotent under blind retry, and none lowers the lease of a live token:

- acquire: set if absent, or already my token;
- free: delete if my token;
- renew: prolong if my token.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ..core import holder as holders
from ..core import owners
from ..core.constants import REMEMBER
from ..core.effects import Command, Standing, Turn
from ..core.holder import Holder
from .base import BaseLock
from .waiting import kept
from .wishes import Ask, Busy, Foreign, Granted

KIND: Final = "lock"

_REMEMBER_MS: Final = int(REMEMBER * 1000)


class Lock(BaseLock):
    """A mutex with owner-only release, renewal, fencing token and loss notice. Not re-entrant unless ``rlock`` made
    it: a second acquire by its owner raises ``LockAlreadyHeld``."""

    __slots__ = ()

    def _try(self, ask: Ask, turn: Turn) -> Command[Granted | Busy | Foreign]:
        terms = self.terms
        about = holders.describe(owners.name_of(ask.owner), self.name, terms.metadata) if terms.metadata else ""
        args: tuple[str | int, ...] = ask.token, terms.lease, KIND, about, _REMEMBER_MS if terms.index else 0
        if turn.address or turn.handed is not None:
            handed = "" if turn.handed is None else turn.handed.hold.token
            args += handed, turn.address, turn.arrival, int(turn.more), kept()
        return Command("lock/acquire", self.keys[:4], args, read_verdict)

    def _free(self, token: str, address: str = "") -> Command[int]:
        args: tuple[str | int, ...] = (token, address, kept()) if address else (token,)
        return Command("lock/free", self._lock_waiters_and_index, args, int)

    def _prolong(self, token: str, lease: int) -> Command[bool]:
        return Command("lock/renew", (self.keys.lock, self.keys.listing), (token, lease), bool)

    def _inspect(self) -> Command[Holder | None]:
        return Command("lock/inspect", (self.keys.lock,), (KIND,), partial(read_holder, self))

    def _force(self, fence: int | None) -> Command[int]:
        return Command("lock/force", self._lock_waiters_and_index, ("" if fence is None else fence,), int)

    @property
    def _lock_waiters_and_index(self) -> tuple[str, ...]:
        keys = self.keys
        return keys.lock, keys.waiters, keys.listing


def read_verdict(reply: list[Any]) -> Granted | Busy | Foreign:
    """``[1, fence, free, arrival, others]``, ``[0, lease left ms, fence, since ms, holder, arrival, others]`` or
    ``[-1, what lives there]``."""
    outcome = reply[0]
    if outcome == 1:
        return Granted(int(reply[1]), bool(reply[2]), _standing(reply[3:]))
    if outcome == 0:
        return Busy(reply[1] / 1000, _holder(reply[1:5]), _standing(reply[5:]))
    return Foreign(_text(reply[1]))


def _standing(fields: list[Any]) -> Standing:
    arrival, others = fields
    return Standing(int(arrival), bool(others))


def read_holder(lock: Lock, reply: list[Any]) -> Holder | None:
    """``[]`` if it is free, else the beginning of a busy verdict."""
    if not reply:
        return None
    if reply[0] == -1:
        raise lock.misplaced(Foreign(_text(reply[1])))
    return _holder(reply[1:5])


def _holder(fields: list[Any]) -> Holder:
    left, fence, since, about = fields
    return holders.read(_text(about), fence=int(fence or 0), since=int(since or 0) / 1000, lease_left=left / 1000)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")

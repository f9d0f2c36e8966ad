"""What a kind of lock defines: its fields, and one command per step. The programs are in ``lock_programs``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Command
    from ...core.effects import Performer
    from ...core.hold import Hold
    from ...core.holder import Holder
    from ...core.keys import LockId, LockKeys
    from ...core.queue_values import Attempt
    from .requests import AcquireRequest, Busy, ForeignValue, Granted, LockOptions, PreparedCommands

FENCE_REQUESTED = 3
"""The reply to a forced release when the holding process was asked for its fence."""


@dataclass(slots=True, weakref_slot=True, unsafe_hash=True)
class LockSteps:
    """A lock that excludes by one key. Immutable by convention (a frozen dataclass takes three times as long to make):
    the state is in the store, in the queue and in the grants. ``prepared`` may have the commands of the fast path."""

    performer: Performer
    lock_id: LockId
    keys: LockKeys
    key: str
    name: str
    alias: str
    options: LockOptions
    reentrant: bool = False
    prepared: PreparedCommands | None = field(default=None, compare=False, repr=False)

    def prepare_commands(self) -> PreparedCommands:
        """Return the commands of the fast path, prepared for these keys."""
        raise NotImplementedError

    @property
    def _release_keys(self) -> tuple[str, ...]:
        """The keys of a command that frees the lock."""
        raise NotImplementedError

    def _holder_text(self, request: AcquireRequest) -> str:
        """Return the description of the holder that is stored with the lock."""
        raise NotImplementedError

    def _attempt_command(self, request: AcquireRequest, attempt: Attempt) -> Command[Granted | Busy | ForeignValue]:
        raise NotImplementedError

    def _release_command(self, token: str, address: str = "") -> Command[int]:
        """Its reply is 0: not held with this token, 1: freed, or 2: granted to a waiter, perhaps of this process.
        ``address``, if any, is registered before that, behind all other waiters."""
        raise NotImplementedError

    def _cleanup_command(self, token: str, address: str) -> Command[int]:
        """As ``_release_command``; also removes ``address``, which has this token, from the store's wait queue."""
        raise NotImplementedError

    def _renew_command(self, token: str, lease: int) -> Command[bool]:
        raise NotImplementedError

    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]:
        """As ``_renew_command``, for a hold that was handed over within this process or granted to it as a waiter, so
        that the store may not know its holder yet. From then on the next hold has to send a request."""
        raise NotImplementedError

    def _inspect_command(self) -> Command[Holder | None]:
        raise NotImplementedError

    def _force_release_command(self, fence: int | None, request_fence: bool) -> Command[int]:
        """As ``_release_command``. Its reply is ``FENCE_REQUESTED`` if ``request_fence`` is set and the fence in the
        store may be older than the holder's: the holder's process is then asked for it."""
        raise NotImplementedError

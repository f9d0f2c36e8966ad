"""What the programs of a lock work on: its keys, its options, and the steps of its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from ...core import forks, owners
from ...core import holder as holders
from ...core.effects import Cleanup
from ...core.errors import LockBackendError, LockKeyError, LockLost
from ...core.grant import GrantedLock
from ...core.hold import Hold, State, UnfencedHold
from .requests import ForeignValue
from .retry import retry_command
from .stored_object import StoredObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Command, Effect, Program
    from ...core.grant import Grant
    from ...core.owners import Owner
    from .lock_steps import LockSteps
    from .requests import TooManyPermits
    from .retry import CommandReply, RetryLimits


@dataclass(slots=True, unsafe_hash=True)
class LockSpec(StoredObject):
    """A lock without a caller: the lock objects of equal arguments share it."""

    steps: LockSteps = field(compare=False, repr=False)
    new_hold: Callable[..., Hold] = field(init=False, compare=False, repr=False)
    """Makes a hold of this lock from the other arguments of ``Hold``."""

    def __post_init__(self) -> None:
        options = self.options
        identity = self.lock_id, self.key, self.name, self.alias
        hold_type = self.steps.hold_type if options.fenced else UnfencedHold
        self.new_hold = partial(hold_type, *identity, options.lease, options.renew_for, options.on_lost)

    def holder_text(self, owner: Owner) -> str:
        """Return the description that is stored with a lock of this thread or task."""
        options, thread = self.options, owners.name_of(owner)
        return holders.describe(forks.known_pid, thread, self.name, options.metadata, options.holder_extras)

    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]:
        """Return the function that makes the first renewal of an adopted lock, as ``LockSteps.adopt`` does. The holder is
        the owner of the hold, if that still exists."""
        owner: Any = hold.owner()
        options, thread = self.options, "" if owner is None else owners.name_of(owner)
        text = holders.describe(forks.known_pid, thread, self.name, options.metadata, options.holder_extras)
        return self.steps.adopt(hold, text)

    def detached_holder_text(self) -> str:
        """Return the description that is stored with a lock without an owner, between ``detach`` and ``attach``. It has
        no process id, because that process may end."""
        options = self.options
        return holders.describe(None, holders.DETACHED, self.name, options.metadata, options.holder_extras)

    def perform(self, effect: Effect[Any]) -> None:
        """Perform a local effect."""
        self.performer.handlers[type(effect)](effect)

    def sending(
        self, command: Command[Any], until: float = inf, limits: RetryLimits | None = None
    ) -> Program[CommandReply]:
        """Send a command of the lock until it is answered, as ``retry_command`` does."""
        limits = limits or self.options.call_limits
        try:
            return (yield from retry_command(command, until, limits, tuning=self.performer.tuning))
        except LockBackendError as failure:
            self.with_context(failure)
            raise

    def cleanup(self, token: str, address: str) -> Cleanup:
        """Return the effect that deletes a token, and the registration of its address, in the background."""
        return Cleanup(self.lock_id, self.steps.clean_up(token, address), self.options.lease / 1000)

    # Errors

    def loss_of(self, hold: Hold, why: str) -> LockLost:
        """Mark a hold as lost, and return the error for its caller."""
        if self.options.auto_release:
            hold.mark_lost(why, (State.HELD, State.RELEASING, State.GONE))
        elif hold.loss_reason is None:  # it was to end by itself: that is reported to the caller alone
            hold.loss_reason = why
        return LockLost(f"lock {self.name!r} was lost while it was held: {hold.loss_reason}", **self.error_context)

    def refusal(self, found: ForeignValue | TooManyPermits) -> Exception:
        """Return the error for a request that can't succeed."""
        if isinstance(found, ForeignValue):
            return self.foreign_value_error(found)
        return ValueError(
            f"{self.name!r} has a limit of {found.limit}, set by set_limit(): the request is for more permits"
        )

    def foreign_value_error(self, found: ForeignValue) -> LockKeyError:
        """Return the error for a key that holds something else."""
        return LockKeyError(
            f"can't lock {self.name!r} of alias {self.alias!r} as a {self.steps.kind}: its key holds {found.what}. "
            "Delete that, or choose another key or KEY_PREFIX",
            **self.error_context,
        )


class SpecifiedLock(GrantedLock, Protocol):
    """A lock object, as the functions of acquire and release see it."""

    @property
    def spec(self) -> LockSpec:
        """What the lock is."""

    @property
    def reentrant(self) -> bool:
        """Whether its owner may enter it again."""

    def may_reenter(self, grant: Grant, loop: object, /) -> bool:
        """Return whether the owner of this grant may acquire the lock once more, in this loop or thread."""

    def waits_for(self, hold: Hold, /) -> bool:
        """Return whether an acquire waits for the end of this hold of another context of the caller."""

    @property
    def why_not_reentered(self) -> str:
        """The reason if ``may_reenter`` is false; "" for the usual one."""

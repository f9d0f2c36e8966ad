"""What a worker does next with a message that it received.

``worker_start`` chooses an action for each verdict and performs it. An ``Ending`` ends the delivery without a run, by
``end_delivery``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from django_redis_locks import Holder


@dataclass(frozen=True, slots=True)
class Take:
    """Try to take the key."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a change of the key's record, then decide again.

    Attributes:
        seconds: how long at most; -1 for ever.
        for_key: whether another job has the key, so that the time counts as ``lock_wait``.
    """

    seconds: float
    for_key: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """Take the result of another task, instead of a run."""

    leader: str


@dataclass(frozen=True, slots=True)
class RunAfter:
    """Run after the message that replaced this one, since a caller or a canvas waits for this task id."""


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """Run this message itself: the task that it follows will never have a result."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Return the result of the task that this one follows."""

    result: Any


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise an error, as the task's own."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Send the same message again.

    Attributes:
        pause: the delay in seconds.
        why: the reason, for the log.
        is_copy: whether the job's run is active elsewhere, see ``Header.is_copy``.
    """

    pause: float
    why: str
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Revoke:
    """End the task as REVOKED."""

    why: str


@dataclass(frozen=True, slots=True)
class Skip:
    """End the task as REVOKED, since ``lock_on_conflict`` is ``"skip"``.

    Attributes:
        why: the reason, for the result.
        described: the job that has the key, for the log.
        holder: the run that has the key, if it is known.
    """

    why: str
    described: str
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the message without changing the task's result: another message of the job was run, or will be."""

    why: str


Ending: TypeAlias = Answer | Fail | Redeliver | Revoke | Skip | Drop
Action: TypeAlias = Take | Wait | Follow | RunAfter | StopFollowing | Ending

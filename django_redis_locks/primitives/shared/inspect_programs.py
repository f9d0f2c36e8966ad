"""The programs that concern any holder of a lock: inspect, and force-release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import clock
from ...core.effects import NotifyWaiters, Sleep
from ...core.errors import LockKeyError
from ...core.holder import Holder
from .lock_steps import FENCE_REQUESTED
from .requests import ForeignValue
from .retry import RetryLimits

if TYPE_CHECKING:
    from ...core.commands import Program
    from .lock_spec import LockSpec


def inspecting(spec: LockSpec) -> Program[Holder | None]:
    """Return the holder of the lock, or None.

    Raises:
        LockKeyError: the key holds a value that isn't a lock.
    """
    found, _, _ = yield from spec.sending(spec.steps.inspect())
    if isinstance(found, ForeignValue):
        raise spec.foreign_value_error(found)
    holder: Holder | None = found
    return holder


def force_releasing(spec: LockSpec, fence: int | None) -> Program[bool]:
    """Free the lock regardless of its holder, or only the hold with this fence. Without one, the hold that is
    found: a command that frees any hold must not be repeated."""
    if fence is not None and type(fence) is not int:
        raise ValueError(
            f"fence must be an int, as grant.fence and holder.fence are, or None for any holder, not {fence!r}"
        )
    limits, exact = None, fence is not None
    if fence is None:
        try:
            holder = yield from inspecting(spec)
        except LockKeyError:  # a record, or a lock without expiry
            limits = RetryLimits(0.0, 0.0)
        else:
            if holder is None:
                return False
            fence = holder.fence
    tuning = spec.performer.tuning
    asks_until = clock.now() + (tuning.fence_request_timeout if exact else 0.0)
    reply, outcome_unknown = FENCE_REQUESTED, False
    while reply == FENCE_REQUESTED:
        command = spec.steps.force_release(fence, request_fence=clock.now() < asks_until)
        reply, _, outcome_unknown = yield from spec.sending(command, limits=limits)
        if reply == FENCE_REQUESTED:
            yield Sleep(tuning.fence_request_interval)
    freed = bool(reply) or outcome_unknown  # by an attempt that got no reply
    if freed:  # all local waiters ask the store, so that none adopts a lock that was freed
        yield NotifyWaiters(spec.lock_id, passed_on=False)
    return freed

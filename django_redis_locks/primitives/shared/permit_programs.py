"""The programs that concern all holders of permits: inspect, force-release, and set the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.effects import NotifyWaiters
from ...core.tuning import MOST_LISTED
from .permit_steps import PermitSteps
from .requests import ForeignValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Program
    from ...core.holder import Holder
    from .lock_spec import LockSpec
    from .permit_steps import PermitState


def steps_of(spec: LockSpec) -> PermitSteps:
    """Return the steps of a lock that is made of permits."""
    assert isinstance(spec.steps, PermitSteps)  # noqa: S101 - its class has no other ones
    return spec.steps


def inspecting_permits(spec: LockSpec) -> Program[PermitState]:
    """Return the holders of permits.

    Raises:
        LockKeyError: the key holds a value of another kind.
    """
    found, _, _ = yield from spec.sending(steps_of(spec).inspect())
    if isinstance(found, ForeignValue):
        raise spec.foreign_value_error(found)
    state: PermitState = found
    return state


def force_releasing_permits(spec: LockSpec, fence: int | None, concerns: Callable[[Holder], bool]) -> Program[bool]:
    """Drop the holds that are found and that it ``concerns``, all or that with this fence: a command that drops any hold
    must not be repeated. Return whether there was one."""
    if fence is not None and type(fence) is not int:
        raise ValueError(
            f"fence must be an int, as grant.fence and holder.fence are, or None for all holders, not {fence!r}"
        )
    freed, more = False, True
    while more:
        found = yield from inspecting_permits(spec)
        fences = [holder.fence for holder in found.holders if concerns(holder)]
        more = len(found.holders) == MOST_LISTED  # perhaps not all are listed, of one side if the lock has two
        if fence is not None:
            fences, more = [fence] if fence in fences or (fences and more) else [], False
        if not fences:
            break
        freed = (yield from _dropping(spec, fences)) or freed
    return freed


def _dropping(spec: LockSpec, fences: list[int]) -> Program[bool]:
    reply, _, outcome_unknown = yield from spec.sending(steps_of(spec).force_release_all(fences))
    freed = bool(reply) or outcome_unknown  # by an attempt that got no reply
    if freed:
        yield NotifyWaiters(spec.lock_id, passed_on=reply > 1)
    return freed


def setting_limit(spec: LockSpec, limit: int) -> Program[None]:
    """Set the limit for all clients.

    Raises:
        LockKeyError: the key holds a value of another kind.
    """
    found, _, _ = yield from spec.sending(steps_of(spec).set_limit(limit))
    if isinstance(found, ForeignValue):
        raise spec.foreign_value_error(found)
    yield NotifyWaiters(spec.lock_id, passed_on=True)

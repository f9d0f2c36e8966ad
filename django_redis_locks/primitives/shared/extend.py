"""Extend the lease of a hold: for its grant, or for another entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import clock
from ...core.errors import LockLost
from ...core.hold import State, validity
from ...core.runner import arun, run

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.grant import Grant
    from ...core.hold import Hold
    from .lock_spec import LockSpec, SpecifiedLock
    from .requests import AcquireRequest


def extend_grant(lock: SpecifiedLock, grant: Grant, lease: int) -> None:
    """Let the lease of a grant end ``lease`` milliseconds from now, or later if it did anyway."""
    run(extending(lock.spec, grant.hold, lease), lock.spec.performer)


async def aextend_grant(lock: SpecifiedLock, grant: Grant, lease: int) -> None:
    """Let the lease of a grant end ``lease`` milliseconds from now, or later if it did anyway; in a running event
    loop."""
    await arun(extending(lock.spec, grant.hold, lease), lock.spec.performer)


def extending(spec: LockSpec, hold: Hold, lease: int, wait: float = 0.0) -> Program[None]:
    """Extend the lease to end ``lease`` milliseconds from now; it is never shortened. A store that refuses
    temporarily is retried for at least ``wait`` seconds."""
    limits = spec.options.call_limits
    if wait > limits.refused:
        limits = limits._replace(refused=wait)
    renew = spec.adopt_command(hold) if hold.unconfirmed else spec.steps.renew
    reply, sent, _ = yield from spec.sending(renew(hold.token, lease), hold.deadline, limits)
    if not reply:
        if hold.state is not State.HELD:  # by a release of this process, in another thread
            raise LockLost(f"lock {spec.name!r} was released in the meantime", **spec.error_context)
        raise spec.loss_of(hold, "taken")
    if not hold.extend_deadline(sent, lease):  # the answer is late: its lease was over, and the loss was reported
        raise spec.loss_of(hold, "expired")


def extending_for_reentry(spec: LockSpec, hold: Hold, request: AcquireRequest) -> Program[None]:
    """Let a hold last as long as an entry with these options expects: until then, or renewed until the entry ends.
    The entry may wait for a store that refuses."""
    renew_for, lease = spec.options.renew_for, spec.options.lease
    if renew_for and hold.renew_until:
        hold.renew_for(request.grant_id, hold.renew_until)
        return
    now = clock.now()
    if hold.unconfirmed:
        lease = max(lease, hold.lease)
    if hold.deadline < now + validity(lease):
        yield from extending(spec, hold, lease, request.wait)
    if renew_for:
        hold.renew_for(request.grant_id, now + renew_for)
        try:
            spec.performer.watch(hold, spec.steps.renew, lease)
        except BaseException:  # the next entry must not take it for a renewed one
            hold.remove_grant(request.grant_id)
            raise

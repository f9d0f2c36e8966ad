"""Release a write lock while grants for reading remain: the hold becomes a reader's, with the same token and fence.

The step may be repeated, because a former writer never writes again under its token. While its outcome isn't known, the
process has a reader's hold, and the store may still keep others away: the maintenance thread repeats the step, and the
release of the hold ends it in any case.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ...core import clock
from ...core.effects import Cleanup, NotifyWaiters
from ...core.errors import LockBackendError
from ...core.hold import State
from ...core.registry import registry
from ...core.write_hold import WriteHold
from .permit_programs import steps_of

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.grant import Grant
    from .lock_spec import LockSpec


def end_write(grant: Grant) -> WriteHold | None:
    """Release the last write grant of a hold with other grants. Return the hold, which is to be downgraded, or None if
    this grant isn't one."""
    hold = grant.hold
    if not isinstance(hold, WriteHold) or not hold.end_write(grant.id):
        return None
    if hold.grant() is grant:
        left = next((other for other in registry.of_hold(hold) if other is not grant), None)
        if left is not None:
            hold.grant = weakref.ref(left)  # on_lost is called with this grant
    registry.forget(grant)
    return hold


def downgrading(spec: LockSpec, hold: WriteHold) -> Program[None]:
    """Let the hold be that of a reader in the store, too.

    Raises:
        LockLost: the lock was lost before.
        LockBackendError: the store can't be reached.
    """
    in_time = clock.now() < hold.deadline
    try:
        reply, _, _ = yield from spec.sending(steps_of(spec).downgrade(hold.token), hold.deadline)
    except LockBackendError as failure:
        if hold.expired_or_lost:
            raise spec.loss_of(hold, "expired") from failure
        raise
    if reply > 1 or spec.lock_id in spec.performer.queued:
        yield NotifyWaiters(spec.lock_id, reply > 1, None, spec.steps.release_keys)
    hold.downgraded = bool(reply)
    # the hold isn't over: another thread may have released it since, and its loss may have been reported
    if hold.state is State.HELD and (not reply or hold.loss_reason is not None):
        raise spec.loss_of(hold, "taken" if in_time else "expired")


def downgrade_later(spec: LockSpec, hold: WriteHold) -> None:
    """Have the maintenance thread downgrade the hold."""
    spec.perform(Cleanup(hold.lock_id, steps_of(spec).downgrade(hold.token), spec.options.lease / 1000))

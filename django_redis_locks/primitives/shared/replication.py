"""The confirmation that replicas have a lock, before its caller gets it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.queue_values import HandedOverLock
from .retry import retry_command

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.hold import Hold
    from ...core.queue_values import Attempt
    from .lock_spec import LockSpec


def replicating(spec: LockSpec, hold: Hold, attempt: Attempt, until: float) -> Program[bool]:
    """Return whether as many replicas have the lock as the options require. A lock that a caller of this process has
    handed over needs no copy: the store still has the token that was copied.

    The lease is extended by a millisecond: Redis counts the replicas that have the last write of a connection, and perhaps
    another connection has granted the lock.

    Raises:
        LockBackendError: the store doesn't answer.
    """
    wanted = spec.options.replicas
    if isinstance(attempt.adopted, HandedOverLock):
        return True
    renewal = spec.steps.renew(hold.token, hold.lease + 1)

    def parse(replies: Any) -> bool:
        held, replicas = replies
        return renewal.parse(held) and int(replicas) >= wanted

    command = replace(renewal, parse=parse, own_keys=0, replicas=wanted)
    copied, _, _ = yield from retry_command(command, until, spec.options.acquire_limits, tuning=spec.performer.tuning)
    return bool(copied)

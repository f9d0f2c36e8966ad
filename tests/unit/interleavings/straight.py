"""The straight attempts to acquire and to release as programs, so that the explorer can step through them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from django_redis_locks.core import clock
from django_redis_locks.core.commands import Command, Program
from django_redis_locks.core.errors import LockBackendError
from django_redis_locks.core.grant import Grant
from django_redis_locks.primitives.lock import Lock
from django_redis_locks.primitives.shared import acquire, release
from django_redis_locks.primitives.shared.requests import AcquireRequest
from django_redis_locks.primitives.shared.wait_loop import UNQUEUED


def acquiring_straight(lock: Lock, request: AcquireRequest) -> Program[Any]:
    """What ``acquire`` does."""
    spec, waiter = lock.spec, request.waiter
    if waiter is None or spec.performer.uncontended(waiter):
        request.maybe_executed = True
        request.sent = clock.now()
        reply = yield from _reply(spec.steps.acquire(request.token, "", UNQUEUED), request.sent)
        grant = acquire._end_straight(lock, request, reply)
        if grant is not None:
            return grant.hold
    return (yield from acquire.acquiring(spec, request))


def releasing_straight(lock: Lock, grant: Grant, loop: object) -> Program[bool]:
    """What ``release_grant`` does with the last grant on a hold."""
    spec, hold, first = lock.spec, grant.hold, None
    if release.begin_straight(spec, hold) is not None:
        sent = clock.now()
        reply = yield from _reply(spec.steps.release(hold.token), sent)
        first = release.end_straight(spec, grant, sent, reply)
        if first is None:
            return True
    return (yield from release.releasing(spec, hold, loop, first))


def _reply(command: Command[Any], sent: float) -> Generator[Any, Any, Any]:
    """Return the raw reply or the error. ``sent`` is a part of the state for as long as there is none."""
    try:
        return (yield replace(command, parse=_raw))
    except LockBackendError as failure:
        return failure


def _raw(reply: Any) -> Any:
    return reply

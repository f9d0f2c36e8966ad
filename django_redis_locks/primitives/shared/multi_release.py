"""Release the grants of several locks: those of mutexes of one alias and bucket by one command, which grants each lock to
its next waiter; others one by one."""

from __future__ import annotations

from itertools import groupby
from os import getpid
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.errors import LockBackendError, LockError, LockLost
from ...core.hold import State
from ...core.registry import registry
from .multi_effects import ReleaseOne, RunAt
from .multi_steps import group_of, release_all
from .release import begin_straight, end_straight, release_grant, releasing, report_released
from .retry import FirstReply

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ...core.commands import Command, Program
    from ...core.grant import Grant


def releasing_all(grants: Iterable[Any], loop: object) -> Program[None]:
    """Release all grants, also if some of them can't be released.

    Raises:
        LockLost: a lock wasn't held any more.
        LockBackendError: a store can't be reached. The release is repeated in the background.
    """
    failures: list[LockError] = []
    for group, found in groupby(grants, _group_of):
        together = list(found)
        if group is None or len(together) == 1:
            for grant in together:
                try:
                    yield from ReleaseOne(grant)
                except LockError as failure:
                    failures.append(failure)
        else:
            yield from _releasing_group(together, loop, failures)
    try:
        if failures:
            raise next((failure for failure in failures if isinstance(failure, LockLost)), failures[0])
    finally:
        failures.clear()  # an error and a frame that refer to each other stay in memory


def _group_of(grant: Any) -> Hashable:
    """Return what is equal for the grants that one command may release; None for a lock that is released alone."""
    usual = type(grant.lock).release_grant is release_grant and grant.hold.pid == getpid()
    return group_of(grant.lock.spec) if usual else None


def _releasing_group(grants: list[Any], loop: object, failures: list[LockError]) -> Program[None]:
    ended = []
    for grant in grants:
        if grant.hold.release_grant(grant.id):
            ended.append(grant)
        else:
            registry.forget(grant)
    certain = [grant for grant in ended if begin_straight(grant.lock.spec, grant.hold) is not None]
    replies: list[Any] = []
    sent = clock.now()
    if certain:
        specs = [grant.lock.spec for grant in certain]
        command = release_all(specs, [grant.hold.token for grant in certain])
        try:
            replies = yield from RunAt(_sending(command), specs[0].performer)
        except LockBackendError as failure:
            replies = [failure] * len(certain)
    first = dict(zip(certain, replies, strict=True))
    replies = []  # an error and a frame that refer to each other stay in memory
    for grant in ended:
        spec = grant.lock.spec
        reply = end_straight(spec, grant, sent, first.pop(grant)) if grant in first else None
        if reply is None and grant.hold.state is State.GONE:
            pass
        elif not (yield from _going_on(grant, loop, reply, failures)):
            continue
        if loop is None and spec.options.after_release is not None:
            spec.options.after_release(spec.name)


def _sending(command: Command[list[int]]) -> Program[list[int]]:
    return (yield from command)


def _going_on(grant: Grant, loop: object, first: FirstReply | None, failures: list[LockError]) -> Program[bool]:
    """Release a lock by its own program, after the reply to the command of all, if there is one. Return whether it was
    released."""
    lock: Any = grant.lock
    try:
        confirmed = yield from RunAt(releasing(lock.spec, grant.hold, loop, first), lock.performer)
    except LockError as failure:
        lock.clean_up_release(grant, failure)
        failures.append(failure)
        return False
    report_released(lock.spec, grant, confirmed)
    return True

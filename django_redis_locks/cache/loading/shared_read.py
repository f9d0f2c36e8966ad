"""Coalesces reads: of many callers that read one value at the same time, one sends the request.

A caller that arrives during a read waits for it. If that read finds no value, the caller takes that result, since its
claim will read the value again. If it finds one, the value may have changed after that read and before the caller
arrived; so all callers that waited share one more read. Tasks share reads only with tasks of their own event loop,
since another loop may be blocked.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.commands import Command
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ...core.runner import run, run_twice_if_interrupted
from ...primitives.shared.load_commands import read_one_command
from ...primitives.shared.retry import FirstReply, retry_command
from .effects import Follow
from .singleflight import RETRY, InflightLoad, LoadOutcome

if TYPE_CHECKING:
    from ...core.commands import Program
    from .request import LoadRequest

ABSENT = -2, None
"""The reply for a value that doesn't exist."""


def read_now(request: LoadRequest, *, with_lifetime: bool) -> tuple[int, Any] | None:
    """Read a value in this thread, as ``read_shared`` does, before there is a program. If there is none, the callers
    that wait for this read aren't woken here but by ``request.wake_readers``.

    Returns:
        The remaining milliseconds of the value, and its data. None if another caller is reading it.
    """
    coordinator = request.coordinator
    reads, performer, key = coordinator.reads, coordinator.performer, (None, request.key, with_lifetime)
    own = InflightLoad()
    try:
        if reads.join(key, own) is not own:
            return None
        command, sent = read_one_command(request.key, with_lifetime=with_lifetime), clock.now()
        try:
            reply: tuple[int, Any] = performer.handlers[Command](command)
        except LockBackendError as failure:
            reply, _, _ = run(retry_command(command, sent, first=FirstReply(sent, failure)), performer)
        wake_readers = partial(reads.finish, key, own, LoadOutcome(reply))
        if reply == ABSENT:
            request.wake_readers = wake_readers
        else:
            wake_readers()
        return reply
    except BaseException:
        run_twice_if_interrupted(partial(reads.finish, key, own, RETRY))
        raise


def read_shared(request: LoadRequest) -> Program[tuple[int, Any]]:
    """Return the remaining milliseconds of a value, and its data: -2 and None if there is none."""
    with_lifetime = request.needs_lifetime
    command = read_one_command(request.key, with_lifetime=with_lifetime)
    reply: tuple[int, Any]
    reads, key = request.coordinator.reads, (running_loop(), request.key, with_lifetime)
    own = InflightLoad()
    try:
        if (read := reads.join(key, own)) is not own:
            until = clock.now() + request.coordinator.performer.tuning.socket_timeout
            outcome: LoadOutcome | None = yield Follow(reads, read, until)
            if outcome is not None and outcome.value == ABSENT:
                return ABSENT
            if (read := reads.join(key, own)) is not own:
                outcome = yield Follow(reads, read, until)
                if outcome is None or outcome is RETRY:
                    reply, _, _ = yield from retry_command(command, clock.now())
                else:
                    reply = outcome.value
                return reply
        reply, _, _ = yield from retry_command(command, clock.now())  # not again: the caller loads instead
        reads.finish(key, own, LoadOutcome(reply))
        return reply
    except BaseException:
        run_twice_if_interrupted(partial(reads.finish, key, own, RETRY))
        raise

"""Coalesced reads: of many callers that read one value at the same time, one asks the store.

A caller that arrives during a read waits for it. If that read finds no value, the caller uses the result: its claim
reads again. Otherwise the read began before the caller arrived, and the value may have changed since; so all callers
that waited share one more read. Tasks share reads with tasks of their own event loop only, since another loop may be
blocked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.owners import running_loop
from ...primitives.shared.load_commands import get_command, read_command
from ...primitives.shared.retry import retry_command
from .effects import Follow
from .singleflight import RETRY, LoadOutcome

if TYPE_CHECKING:
    from ...core.commands import Program
    from .request import LoadRequest
    from .singleflight import InflightLoad

ABSENT = -2, None


def read_shared(request: LoadRequest) -> Program[tuple[int, Any]]:
    """Return the remaining milliseconds of a value, and its data: -2 and None if there is none."""
    reads, key = request.coordinator.reads, (running_loop(), request.key, request.needs_lifetime)
    read, leads = reads.join(key)
    if not leads:
        until = clock.now() + request.coordinator.performer.tuning.socket_timeout
        outcome: LoadOutcome | None = yield Follow(reads, read, until)
        if outcome is not None and outcome.value == ABSENT:
            return ABSENT
        read, leads = reads.join(key)
        if not leads:
            outcome = yield Follow(reads, read, until)
            if outcome is None or outcome is RETRY:
                return (yield from _read(request))
            found: tuple[int, Any] = outcome.value
            return found
    return (yield from _leading(request, key, read))


def _leading(request: LoadRequest, key: Any, read: InflightLoad) -> Program[tuple[int, Any]]:
    outcome = RETRY
    try:
        found = yield from _read(request)
        outcome = LoadOutcome(found)
        return found
    finally:
        request.coordinator.reads.finish(key, read, outcome)


def _read(request: LoadRequest) -> Program[tuple[int, Any]]:
    at_once = clock.now()
    if request.needs_lifetime:
        ((remaining_ms, data),), _, _ = yield from retry_command(read_command((request.key,)), at_once)
        return remaining_ms, data
    data, _, _ = yield from retry_command(get_command(request.key), at_once)
    return (-2 if data is None else -1), data

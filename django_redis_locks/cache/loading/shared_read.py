"""Looking at one value together: of a crowd that asks at once, one asks the store.

Who comes while a look is on its way waits for it. If there is nothing, that is as good as a look of his own: the claim
looks again. Otherwise it began before he came, and something may have changed between the two; the next look, which all
who waited share, didn't. The tasks of each loop are by themselves, since another one may be blocked.
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
    """The milliseconds that the value has left, and the value."""
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

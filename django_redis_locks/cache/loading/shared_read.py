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

NOTHING = -2, None


def together(call: LoadRequest) -> Program[tuple[int, Any]]:
    """The milliseconds that the value has left, and the value."""
    looks, key = call.coordinator.looks, (running_loop(), call.key, call.ends_matter)
    look, mine = looks.join(key)
    if not mine:
        until = clock.now() + call.coordinator.performer.tuning.socket_timeout
        load_outcome: LoadOutcome | None = yield Follow(looks, look, until)
        if load_outcome is not None and load_outcome.value == NOTHING:
            return NOTHING
        look, mine = looks.join(key)
        if not mine:
            load_outcome = yield Follow(looks, look, until)
            if load_outcome is None or load_outcome is RETRY:
                return (yield from _look(call))
            found: tuple[int, Any] = load_outcome.value
            return found
    return (yield from _leading(call, key, look))


def _leading(call: LoadRequest, key: Any, look: InflightLoad) -> Program[tuple[int, Any]]:
    load_outcome = RETRY
    try:
        found = yield from _look(call)
        load_outcome = LoadOutcome(found)
        return found
    finally:
        call.coordinator.looks.land(key, look, load_outcome)


def _look(call: LoadRequest) -> Program[tuple[int, Any]]:
    at_once = clock.now()
    if call.ends_matter:
        ((lives, data),), _, _ = yield from retry_command(read_command((call.key,)), at_once)
        return lives, data
    data, _, _ = yield from retry_command(get_command(call.key), at_once)
    return (-2 if data is None else -1), data

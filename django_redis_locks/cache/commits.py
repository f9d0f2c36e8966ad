"""What is loaded or invalidated inside of a transaction: it may be rolled back, so nobody else learns of it before COMMIT.

Of a rollback Django doesn't tell; but what was given to ``on_commit`` is dropped with the transaction, so what is dropped
unheard tells that it was rolled back.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.runner import run
from ..open_transactions import open_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.effects import Place
    from ..primitives.load import Claim
    from .calls import Call
    from .endings import Ending
    from .roads import Road

__all__ = ["after_commit", "any_pending", "defer", "forget", "forget_all", "open_now", "pending"]


class _Here(threading.local):
    """What this thread has loaded in transactions that are open."""

    def __init__(self) -> None:
        self.pending: dict[Place, _Pending] = {}


_here = _Here()


def any_pending() -> bool:
    return bool(_here.pending)


def pending(place: Place) -> _Pending | None:
    """What this thread has loaded in a transaction that is still open."""
    found = _here.pending.get(place)
    if found is not None and not found.is_open():
        _here.pending.pop(place, None)
        found = None
    return found


def forget(place: Place) -> None:
    """What was loaded is invalidated: it isn't stored."""
    found = _here.pending.pop(place, None)
    if found is not None:
        found.dropped()


def forget_all(road: Road) -> None:
    """The same, of all that are cleared with this road's."""
    for place, found in list(_here.pending.items()):
        theirs = found.road
        if place.store == road.load("", "").place.store and theirs.generations() == road.generations():
            forget(place)


def defer(
    connections: list[Any], call: Call, claim: Claim, ending: Ending, value: Any, data: Any, keep: float | None
) -> None:
    """Store a value when these transactions are committed; the claim is kept until then."""
    _here.pending[call.place] = _Pending(connections, call, claim, ending, value, data, keep)


class _Pending:
    def __init__(
        self,
        connections: list[Any],
        call: Call,
        claim: Claim,
        ending: Ending,
        value: Any,
        data: Any,
        keep: float | None,
    ) -> None:
        self.data = data
        self.value = value
        self.road = call.road
        self._call = call
        self._claim = claim
        self._store = partial(ending.stored, value, data, keep)
        self._here = _here.pending
        """Its thread's: a finalizer may run in another one."""
        self._waits_for = len(connections)
        self._connections = [(connection, len(connection.run_on_commit)) for connection in connections]
        for connection in connections:
            connection.on_commit(_Hook(self), robust=True)

    def is_open(self) -> bool:
        """Whether all its transactions still have our hook: a savepoint that was rolled back has dropped it."""
        return all(
            any(getattr(hook, "pending", None) is self for _, hook, _ in connection.run_on_commit[at : at + 1])
            for connection, at in self._connections
        )

    def committed(self) -> None:
        self._waits_for -= 1
        if self._waits_for == 0:
            self._leave()
            run(self._store(), self._call.road.world)

    def dropped(self) -> None:
        """In a finalizer: the collector may have chosen any moment."""
        self._leave()
        call, claim = self._call, self._claim
        sweep = call.load.abandoning(call.token, claim.hold, call.options.expire)
        call.road.world.handlers[type(sweep)](sweep)

    def _leave(self) -> None:
        if self._here.get(self._call.place) is self:
            self._here.pop(self._call.place, None)


class _Hook:
    """Given to ``on_commit``."""

    def __init__(self, pending: _Pending) -> None:
        self.pending = pending
        self._finalizer = weakref.finalize(self, pending.dropped)
        self._finalizer.atexit = False
        self.__qualname__ = "the store of a loaded value"  # Django logs it

    def __call__(self) -> None:
        self._finalizer.detach()
        self.pending.committed()


def after_commit(connections: list[Any], job: Callable[[], object]) -> None:
    """Do it when these transactions are committed."""
    if not connections:
        job()
        return
    rest = connections[1:]
    connections[0].on_commit(lambda: after_commit([each for each in rest if each.in_atomic_block], job))

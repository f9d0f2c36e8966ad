"""The rule of fair locks: whatever frees one, it goes to the live waiter that has waited longest."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks.core.keys import waiters_of
from django_redis_locks.core.steps.locks import AcquireFair

if TYPE_CHECKING:
    from collections.abc import Collection

    from django_redis_locks.core.commands import Command
    from tests.simulation.network import Server


class FairOrder:
    """Checks each command after which a lock has another holder than before.

    Args:
        server: the server of the simulation, where all locks are fair.
        locks: their keys in the store.
    """

    def __init__(self, server: Server, locks: Collection[str]) -> None:
        self._server = server
        self._tokens = dict.fromkeys(locks, "")
        self._lines: dict[str, dict[str, int]] = {}
        self.look()
        server.observers.append(self._observe)

    def look(self) -> None:
        """See the holders and the waiters, after a change that no command has made."""
        store = self._server.store
        for lock in self._tokens:
            record = store.records.get(lock)
            self._tokens[lock] = "" if record is None else record.token
            self._lines[lock] = dict(store.queues.get(waiters_of(lock), {}))

    def _observe(self, command: Command[Any], reply: Any) -> None:
        before, lines = dict(self._tokens), dict(self._lines)
        self.look()
        for lock, token in self._tokens.items():
            if token not in ("", before[lock]):
                self._check(lines[lock], self._lines[lock], token, command)

    def _check(self, line: dict[str, int], left: Collection[str], token: str, command: Command[Any]) -> None:
        places = {address: place for address, place in line.items() if token in address.split(" ")}
        place: float = min(places.values(), default=inf)
        args = command.args
        if isinstance(args, AcquireFair) and args.token == token and args.waiter is not None:
            place = min(place, args.waiter.place if args.waiter.place > 0 else inf)
        for address, other_place in line.items():
            alive = address.split(" ")[0] in self._server.store.inboxes
            if address not in places and address in left and other_place < place and alive:
                self._server.scheduler.violation(f"a caller overtakes {address}, which has waited longer")

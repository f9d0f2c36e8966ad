"""The rule of locks with one line of waiters: whatever frees one, the live waiter that has waited longest gets it first."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks.backends.memory.permits import Permits
from django_redis_locks.core.keys import waiters_of
from django_redis_locks.core.steps.locks import AcquireFair
from django_redis_locks.core.steps.permits import AcquirePermits

if TYPE_CHECKING:
    from collections.abc import Collection

    from django_redis_locks.core.commands import Command
    from tests.simulation.network import Server


class FairOrder:
    """Checks each command after which a lock has a holder that it hadn't before.

    Args:
        server: the server of the simulation.
        locks: the keys in the store of the locks that have a line.
    """

    def __init__(self, server: Server, locks: Collection[str]) -> None:
        self._server = server
        self._tokens: dict[str, frozenset[str]] = dict.fromkeys(locks, frozenset())
        self._lines: dict[str, dict[str, int]] = {}
        self.look()
        server.observers.append(self._observe)

    def look(self) -> None:
        """See the holders and the waiters, after a change that no command has made."""
        store = self._server.store
        for lock in self._tokens:
            record = store.records.get(lock)
            if isinstance(record, Permits):
                self._tokens[lock] = frozenset(record.holds)
            else:
                self._tokens[lock] = frozenset() if record is None else frozenset({record.token})
            self._lines[lock] = dict(store.queues.get(waiters_of(lock), {}))

    def _observe(self, command: Command[Any], reply: Any) -> None:
        before, lines = dict(self._tokens), dict(self._lines)
        self.look()
        for lock, tokens in self._tokens.items():
            for token in sorted(tokens - before[lock]):
                self._check(lines[lock], self._lines[lock], token, command)

    def _check(self, line: dict[str, int], left: Collection[str], token: str, command: Command[Any]) -> None:
        places = {address: place for address, place in line.items() if token in address.split(" ")}
        place: float = min(places.values(), default=inf)
        args = command.args
        if isinstance(args, (AcquireFair, AcquirePermits)) and args.token == token and args.waiter is not None:
            place = min(place, args.waiter.place if args.waiter.place > 0 else inf)
        for address, other_place in line.items():
            alive = address.split(" ")[0] in self._server.store.inboxes
            if address not in places and address in left and other_place < place and alive:
                self._server.scheduler.violation(f"a caller overtakes {address}, which has waited longer")

"""The store: the memory backend's commands on copies of its store. Its states are numbers, like those of processes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields
from math import inf
from typing import Any, NamedTuple, Protocol

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory.permits import Permits
from django_redis_locks.core.keys import heartbeats_of

from .environment import Timestamp, environment
from .fingerprints import Fingerprinter
from .process import KEYS, PROCESS


class Request(Protocol):
    """A command, or a delayed one."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def args(self) -> tuple[Any, ...]: ...


class StoreResult(NamedTuple):
    """The result of a request.

    Attributes:
        after: the number of the store's new state.
        notified: the notified processes, each with the number of the queue to wake in it, and the token that the lock
            was granted to, or "".
        overtakes: a caller of a lock with one line got it, although a live waiter is before it in line.
    """

    after: int
    reply: Any
    notified: tuple[tuple[int, str, str], ...]
    overtakes: bool = False


class StoreStates:
    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._stores: list[tuple[memory.Store, Timestamp]] = []
        self._results: dict[Any, Any] = {}
        self._notified: list[tuple[int, str, str]] = []
        # By the number of a state:
        self.tokens: list[frozenset[str]] = []
        """The tokens that hold the lock."""
        self.available: list[bool] = []
        """Whether the lock is free, or the permits that the first waiter wants."""
        self.last_arrival: list[int] = []
        """The latest arrival time in the wait queue."""
        self.queues: list[tuple[str, ...]] = []
        """The addresses in the wait queue."""
        self._number(memory.Store(), Timestamp(0.0))

    def execute(self, state: int, sender: int, request: Request, enqueued_at: int) -> StoreResult:
        """Execute a request; ``enqueued_at`` is the arrival time of a waiter that it registers."""
        what = state, sender, request.name, request.args, enqueued_at
        done: StoreResult | None = self._results.get(what)
        if done is None:
            step, args = memory._steps[request.name], _with_process(request.args, sender)
            done = self._apply(state, lambda store: step(store, request.keys, args), enqueued_at)
            if request.name in _WITH_ONE_LINE:
                done = done._replace(overtakes=self._overtakes(state, done.after, args))
            self._results[what] = done
        return done

    def _overtakes(self, before: int, after: int, args: Any) -> bool:
        line = self._stores[before][0].queues.get(KEYS.waiters, {})
        store = self._stores[after][0]
        waiter = getattr(args, "waiter", None)
        for token in self.tokens[after] - self.tokens[before]:
            own_place = min((place for address, place in line.items() if token in address.split(" ")), default=inf)
            if waiter is not None and args.token == token:
                own_place = min(own_place, waiter.place if waiter.place > 0 else inf)
            for address in self.queues[after]:
                if line.get(address, inf) < own_place and address.split(" ")[0] in store.inboxes:
                    return True
        return False

    def subscribe(self, state: int, process: int, on: bool) -> int:
        """Subscribe or unsubscribe a process."""
        channel = KEYS.inbox + str(process)

        def change(store: memory.Store) -> None:
            store.inboxes.pop(channel, None)
            if on:
                store.inboxes[channel] = lambda word, _: self._notified.append((process, *f"{word},,".split(",")[:2]))

        return self._memoized((state, channel, on), lambda: self._apply(state, change).after)

    def after_time(self, state: int, seconds: float) -> int:
        store, now = self._stores[state]
        return self._memoized((state, seconds), lambda: self._number(_copy(store), now + seconds))

    def renumbered(self, state: int, order: tuple[int, ...]) -> int:
        """The state in which the processes are numbered in this order."""
        return self._memoized((state, order), lambda: self._renumbered(state, order))

    def _memoized(self, what: Any, find: Callable[[], int]) -> int:
        known: int | None = self._results.get(what)
        if known is None:
            known = self._results[what] = find()
        return known

    def _apply(self, state: int, change: Callable[[memory.Store], Any], enqueued_at: int = 0) -> StoreResult:
        store, now = self._stores[state]
        store = _copy(store)
        environment.now, environment.enqueued_at = now, enqueued_at
        self._notified.clear()
        reply = change(store)
        notified = tuple(self._notified)
        return StoreResult(self._number(store, now), tuple(reply) if isinstance(reply, list) else reply, notified)

    def _renumbered(self, state: int, order: tuple[int, ...]) -> int:
        store, now = self._stores[state]
        copied = _copy(store)
        new_numbers = {str(old): str(new) for new, old in enumerate(order)}
        for record in copied.records.values():
            if isinstance(record, Permits):
                _rename(record, new_numbers)
            else:
                record.token = new_numbers[record.token[0]] + record.token[1:]
        digit_at = len(KEYS.inbox)

        def renumbered(address: str) -> str:
            channel, number, token, *rest = address.split(" ")
            name, token = (
                text[:at] + new_numbers[text[at]] + text[at + 1 :] for text, at in ((channel, digit_at), (token, 0))
            )
            return " ".join([name, number, token, *rest])

        for part in ("queues", "heartbeats"):
            waiters = getattr(store, part)
            renamed = {key: {renumbered(name): time for name, time in of.items()} for key, of in waiters.items()}
            setattr(copied, part, renamed)
        number = self._number(_without_subscribers(copied), now)
        for channel in store.inboxes:
            number = self.subscribe(number, int(new_numbers[channel[digit_at]]), True)
        return number

    def _number(self, store: memory.Store, now: Timestamp) -> int:
        environment.now = now
        record = store.find(KEYS.lock)
        if isinstance(record, Permits):
            record.drop_ended()  # as the next step does
        heartbeats = store.heartbeats.get(heartbeats_of(KEYS.lock), {})
        for address in [address for address, until in heartbeats.items() if until <= now]:
            del heartbeats[address]
            store.dequeue(KEYS.waiters, address)
        fingerprinter = Fingerprinter(now)
        fingerprint = fingerprinter.of((store.records, store.queues, heartbeats, sorted(store.inboxes)))
        number = self._numbers.setdefault(fingerprint, len(self._numbers))
        if number == len(self._stores):
            self._stores.append((store, now))
            self.tokens.append(_tokens(record))
            self.available.append(_is_available(store, record))
            self.last_arrival.append(fingerprinter.last_arrival)
            self.queues.append(tuple(store.queues.get(KEYS.waiters, ())))
        return number


_WITH_ONE_LINE = {
    "lock/acquire_fair",
    *(f"permits/{step}" for step in ("acquire", "release", "downgrade", "unregister")),
}
"""The steps that may grant a lock with one line of waiters."""


def _tokens(record: Any) -> frozenset[str]:
    if isinstance(record, Permits):
        return frozenset(record.holds)
    return frozenset() if record is None else frozenset({record.token})


def _is_available(store: memory.Store, record: Any) -> bool:
    line = store.queues.get(KEYS.waiters, {})
    if not _tokens(record):
        return True
    alive = [address for address in sorted(line, key=line.__getitem__) if address.split(" ")[0] in store.inboxes]
    if not isinstance(record, Permits) or not alive:
        return False
    _, _, limit, permits = alive[0].split(" ")[3].split("/")
    return int(permits) <= record.limit_for(int(limit)) - record.used


def _rename(permits: Permits, new_numbers: dict[str, str]) -> None:
    """Rename the processes in the tokens of the holds."""
    for name in ("holds", "permits"):
        renamed = {new_numbers[token[0]] + token[1:]: value for token, value in getattr(permits, name).items()}
        setattr(permits, name, renamed)
    for token, hold in permits.holds.items():
        hold.token = token


def _with_process(arg: Any, process: int) -> Any:
    if isinstance(arg, tuple):
        make = getattr(arg, "_make", tuple)
        return make(_with_process(part, process) for part in arg)
    return arg.replace(PROCESS, str(process)) if isinstance(arg, str) else arg


def _copy(store: memory.Store) -> memory.Store:
    copied = copy.copy(store)
    for field in fields(store):
        value = getattr(store, field.name)
        if isinstance(value, dict):
            setattr(copied, field.name, {key: copy.copy(part) for key, part in value.items()})
    for record in copied.records.values():
        if isinstance(record, Permits):
            record.holds = {token: copy.copy(hold) for token, hold in record.holds.items()}
            record.permits = dict(record.permits)
    return copied


def _without_subscribers(store: memory.Store) -> memory.Store:
    store.inboxes = {}
    return store

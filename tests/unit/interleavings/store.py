"""The store: the memory backend's own commands, on stores of our own. Its states are numbers, as those of processes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

from django_redis_locks.backends.memory import backend as memory

from .moments import Moment, performer
from .process import KEYS, ME
from .sameness import Shaper


class Request(Protocol):
    """A command, or a late copy of one."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def args(self) -> tuple[str | int, ...]: ...


class Done(NamedTuple):
    """What a request leads to.

    Attributes:
        after: the number of the store's state.
        told: processes, and the number of the queue that each is to wake.
    """

    after: int
    reply: Any
    told: tuple[tuple[int, str], ...]


class Store:
    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._stores: list[tuple[memory.Store, Moment]] = []
        self._known: dict[Any, Any] = {}
        self._told: list[tuple[int, str]] = []
        # By the number of a state:
        self.tokens: list[str | None] = []
        """Whose the lock is."""
        self.last: list[int] = []
        """The last arrival in the line."""
        self.queues: list[tuple[str, ...]] = []
        """The addresses in it."""
        self._number(memory.Store(), Moment(0.0))

    def carry_out(self, state: int, sender: int, request: Request, enqueued_at: int) -> Done:
        """``enqueued_at`` is what its clock says to whoever lines up."""
        what = state, sender, request.name, request.args, enqueued_at
        done: Done | None = self._known.get(what)
        if done is None:
            step, args = memory._steps[request.name], [_named(arg, sender) for arg in request.args]
            done = self._known[what] = self._changed(state, lambda store: step(store, request.keys, *args), enqueued_at)
        return done

    def subscribe(self, state: int, process: int, on: bool) -> int:
        """A process begins to listen, or stops."""
        channel = KEYS.inbox + str(process)

        def change(store: memory.Store) -> None:
            store.inboxes.pop(channel, None)
            if on:
                store.inboxes[channel] = lambda number, _: self._told.append((process, number))

        return self._once((state, channel, on), lambda: self._changed(state, change).after)

    def later(self, state: int, passed: float) -> int:
        store, now = self._stores[state]
        return self._once((state, passed), lambda: self._number(_copy(store), now + passed))

    def renamed(self, state: int, order: tuple[int, ...]) -> int:
        """As if the processes had been numbered in this order."""
        return self._once((state, order), lambda: self._renamed(state, order))

    def _once(self, what: Any, find: Callable[[], int]) -> int:
        known: int | None = self._known.get(what)
        if known is None:
            known = self._known[what] = find()
        return known

    def _changed(self, state: int, change: Callable[[memory.Store], Any], enqueued_at: int = 0) -> Done:
        store, now = self._stores[state]
        store = _copy(store)
        performer.now, performer.enqueued_at = now, enqueued_at
        self._told.clear()
        reply = change(store)
        told = tuple(self._told)
        return Done(self._number(store, now), tuple(reply) if isinstance(reply, list) else reply, told)

    def _renamed(self, state: int, order: tuple[int, ...]) -> int:
        store, now = self._stores[state]
        twin = _copy(store)
        news = {str(old): str(new) for new, old in enumerate(order)}
        for record in twin.records.values():
            record.token = news[record.token[0]] + record.token[1:]
        lock_id = len(KEYS.inbox)
        twin.queues = {
            key: {name[:lock_id] + news[name[lock_id]] + name[lock_id + 1 :]: since for name, since in line.items()}
            for key, line in store.queues.items()
        }
        number = self._number(_deaf(twin), now)
        for channel in store.inboxes:
            number = self.subscribe(number, int(news[channel[lock_id]]), True)
        return number

    def _number(self, store: memory.Store, now: Moment) -> int:
        performer.now = now
        record = store.find(KEYS.lock)
        shaper = Shaper(now)
        shape = shaper.of((store.records, store.queues, sorted(store.inboxes)))
        number = self._numbers.setdefault(shape, len(self._numbers))
        if number == len(self._stores):
            self._stores.append((store, now))
            self.tokens.append(record.token if record is not None else None)
            self.last.append(shaper.last)
            self.queues.append(tuple(store.queues.get(KEYS.waiters, ())))
        return number


def _named(arg: str | int, process: int) -> str | int:
    return arg.replace(ME, str(process)) if isinstance(arg, str) else arg


def _copy(store: memory.Store) -> memory.Store:
    twin = copy.copy(store)
    for field in fields(store):
        value = getattr(store, field.name)
        if isinstance(value, dict):
            setattr(twin, field.name, {key: copy.copy(part) for key, part in value.items()})
    return twin


def _deaf(store: memory.Store) -> memory.Store:
    store.inboxes = {}
    return store

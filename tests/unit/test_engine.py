"""The world that programs run in, over a store that only takes notes: what goes to the queues, the inbox, the janitor."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks.backends.base import Backend, Inbox, Listener
from django_redis_locks.core import clock, effects
from django_redis_locks.core.effects import (
    Command,
    Effect,
    Freed,
    Handed,
    HandOver,
    Leave,
    LineUp,
    Listen,
    Place,
    Seat,
    Turn,
    Wait,
)
from django_redis_locks.engine import Engine
from tests.forks import in_child

LOCK, WAITERS = "lock:{0}:k:order:42", "lock:{0}:w:order:42"
_numbers = itertools.count()
BUSY = 8.0
"""Seconds that a busy machine may need on top of what is measured."""


class Ear(Inbox):
    """Is opened, and answers, as the test says."""

    def __init__(self) -> None:
        self.name = "me"
        self.answers = True
        self.asked: list[str] = []
        self.events: list[str] = []

    def hears(self, channel: str) -> str:
        return channel + self.name if self.name else ""

    def open(self, channel: str, then: Callable[[], object]) -> None:
        self.asked.append(channel)
        if self.answers:
            then()

    def close(self) -> None:
        self.events.append("close")

    def after_fork_in_child(self) -> None:
        self.events.append("fork")


class Notes(Backend):
    """Carries nothing out."""

    def __init__(self) -> None:
        self.identity = f"notes:{next(_numbers)}"
        self.ear = Ear()
        self.told: Listener | None = None
        self.sent: list[tuple[Any, ...]] = []
        self.events: list[str] = []

    def inbox(self, listener: Listener) -> Inbox:
        self.told = listener
        return self.ear

    def call(self, command: Command[Any]) -> Any:
        self.sent.append((command.name, command.keys, *command.args))
        return 0

    def close(self) -> None:
        self.events.append("close")

    def after_fork_in_child(self) -> None:
        self.events.append("fork")


@pytest.fixture
def store() -> Notes:
    return Notes()


@pytest.fixture
def engine(store: Notes) -> Iterator[Engine]:
    engine = Engine(store)
    yield engine
    engine.settle(20)


def sit(engine: Engine, home: Any = None) -> Seat:
    """Somebody waits who hasn't asked yet."""
    seat = Seat(Place(engine.backend.identity, LOCK), home, "inbox:")
    engine._queues._join(seat, engine)
    return seat


def perform(engine: Engine, effect: Effect[Any]) -> Any:
    return engine.handlers[type(effect)](effect)


async def aperform(engine: Engine, effect: Effect[Any]) -> Any:
    return await engine.ahandlers[type(effect)](effect)


def sent(engine: Engine, store: Notes) -> list[tuple[Any, ...]]:
    """What the janitor has sent."""
    engine.settle(20)
    return store.sent


@pytest.mark.parametrize("which", ["its number", "all"])
def test_engine_is_notified_by_its_inbox(engine: Engine, store: Notes, which: str) -> None:
    """[H9] A wake-up reaches the queue of that number; [H10] after a reconnect every head asks."""
    assert store.told is engine
    seat = sit(engine)
    turn = perform(engine, Wait(seat, clock.now() - 1))
    assert turn == Turn(f"inbox:me {seat.queue.number}")
    if which == "all":
        engine.missed()
    else:
        engine.told(seat.queue.number, LOCK)
    begin = clock.now()
    assert perform(engine, Wait(seat, begin + 60, 60.0))
    assert clock.now() - begin < BUSY
    assert sent(engine, store) == []


def test_wake_up_without_a_waiter_is_passed_on(engine: Engine, store: Notes) -> None:
    """[H9] The store has taken that queue out of the line already; the next one is notified if the lock is free."""
    engine.told("7f", LOCK)
    assert sent(engine, store) == [("queue/leave", (LOCK, WAITERS), "")]


def test_last_waiter_is_unregistered_by_cleanup(engine: Engine, store: Notes) -> None:
    """[H9] By the janitor: nothing is asked while a program unwinds. [L25] The inbox is closed when none waits."""
    assert not engine.waiting()
    seat = sit(engine)
    assert engine.waiting()
    turn = perform(engine, Wait(seat, clock.now() - 1))
    assert turn is not None
    perform(engine, Leave(seat))
    assert not engine.waiting()
    assert sent(engine, store) == [("queue/leave", (LOCK, WAITERS), turn.address)]


def test_handover_without_a_taker_is_freed_by_cleanup(engine: Engine, store: Notes) -> None:
    """[H3] [H9] By the janitor too, and before it passes anything on."""
    seat = sit(engine)
    hold: Any = SimpleNamespace(place=seat.place, token="secret", lease=1000)
    handed = Handed(hold, lambda token: Command("lock/free", (LOCK, WAITERS, "index"), (token,), int), lambda: None)
    assert perform(engine, HandOver(handed, None))
    perform(engine, Leave(seat))
    assert sent(engine, store)[:2] == [
        ("lock/free", (LOCK, WAITERS, "index"), "secret"),
        ("queue/leave", (LOCK, WAITERS), ""),
    ]


def test_requeued_queue_without_waiters_is_unregistered_by_cleanup(engine: Engine, store: Notes) -> None:
    """[H4] [H9] Its last one left while the release was on its way."""
    seat = sit(engine)
    address = perform(engine, LineUp(seat.place, None))
    assert address == f"inbox:me {seat.queue.number}"
    perform(engine, Leave(seat, None, None))
    before = len(sent(engine, store))
    perform(engine, Freed(seat.place, True, address))
    assert sent(engine, store)[before:] == [("queue/leave", (LOCK, WAITERS), address)]


# Listening


def listen(engine: Engine, seconds: float) -> bool:
    return perform(engine, Listen("inbox:", seconds))


def alisten(engine: Engine, seconds: float) -> bool:
    async def main() -> bool:
        return await aperform(engine, Listen("inbox:", seconds))

    return asyncio.run(main())


both = pytest.mark.parametrize("listen", [listen, alisten], ids=["sync", "async"])


@both
@pytest.mark.parametrize("name", ["me", ""])
def test_listen_returns_whether_the_inbox_is_confirmed(
    engine: Engine, store: Notes, listen: Callable[[Engine, float], bool], name: str
) -> None:
    """[H7] When the inbox answers, whatever it answers."""
    store.ear.name = name
    begin = clock.now()
    assert listen(engine, 60) is bool(name)
    assert clock.now() - begin < BUSY
    assert store.ear.asked == ["inbox:"]


@both
def test_listen_ends_at_its_timeout(engine: Engine, store: Notes, listen: Callable[[Engine, float], bool]) -> None:
    """[L19] [L30] An inbox that doesn't answer isn't waited for."""
    store.ear.answers, store.ear.name = False, ""
    begin = clock.now()
    assert listen(engine, 0.05) is False
    assert 0.05 <= clock.now() - begin < BUSY


# Who performs what


def test_engine_performs_every_effect(engine: Engine) -> None:
    """[F25] Whatever a program may ask for, in both worlds: who awaits may block, and nothing else is awaited."""
    values = (kind for kind in vars(effects).values() if isinstance(kind, type))
    kinds = {kind for kind in values if issubclass(kind, Effect) and kind is not Effect}
    assert set(engine.handlers) == kinds
    assert set(engine.ahandlers) == {kind for kind in kinds if not kind.local}


def test_sync_wait_in_a_running_loop_raises(engine: Engine) -> None:
    """[F17] Neither with a command nor in a queue: the caller is told of the a-twin."""

    async def main() -> None:
        seat = Seat(Place(engine.backend.identity, LOCK), None, "inbox:")
        for effect in (Command("lock/free", (LOCK,), ("token",), int), Wait(seat, clock.now() + 5, 5.0)):
            with pytest.raises(SynchronousOnlyOperation, match="aacquire"):
                perform(engine, effect)
        perform(engine, Leave(seat))

    asyncio.run(main())


# Its end, and its children


def test_close_closes_backend_and_inbox(engine: Engine, store: Notes) -> None:
    """[L25] The inbox too."""
    engine.close()
    assert store.ear.events == store.events == ["close"]


def test_forked_child_has_an_engine_without_state(engine: Engine, store: Notes) -> None:
    """[H18] Neither the parent's connections nor its inbox nor its waiters."""
    sit(engine)

    def child() -> None:
        assert store.events == store.ear.events == ["fork"]
        assert not engine.waiting()

    in_child(child)
    assert store.events == store.ear.events == []
    assert engine.waiting()

"""Tests of the engine over a store that only records calls. test_interleavings covers its queues and maintenance."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from django_redis_locks.backends.base import Backend, MessageHandler, Subscriber
from django_redis_locks.core import clock, effects
from django_redis_locks.core.commands import Effect
from django_redis_locks.core.effects import Subscribe
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.queue_values import Waiter
from django_redis_locks.engine.engine import Engine
from tests.forks import in_child

_numbers = itertools.count()
BUSY = 8.0
"""Extra seconds that a busy machine may need."""


class FakeSubscriber(Subscriber):
    """A subscriber that confirms subscriptions if ``answers`` is set."""

    def __init__(self) -> None:
        self.name = "me"
        self.answers = True
        self.asked: list[str] = []
        self.events: list[str] = []

    def channel_name(self, channel: str) -> str:
        return channel + self.name if self.name else ""

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        self.asked.append(channel)
        if self.answers:
            callback()

    def close(self) -> None:
        self.events.append("close")

    def after_fork_in_child(self) -> None:
        self.events.append("fork")


class Notes(Backend):
    """A backend that records calls and executes nothing."""

    def __init__(self) -> None:
        self.identity = f"notes:{next(_numbers)}"
        self.own = FakeSubscriber()
        self.events: list[str] = []

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        return self.own

    def close(self) -> None:
        self.events.append("close")

    def after_fork_in_child(self) -> None:
        self.events.append("fork")


@pytest.fixture
def store() -> Notes:
    return Notes()


@pytest.fixture
def engine(store: Notes) -> Engine:
    return Engine(store)


# Subscribing


def listen(engine: Engine, seconds: float) -> bool:
    return engine.handlers[Subscribe](Subscribe("inbox:", seconds))


def alisten(engine: Engine, seconds: float) -> bool:
    async def main() -> bool:
        return await engine.ahandlers[Subscribe](Subscribe("inbox:", seconds))

    return asyncio.run(main())


both = pytest.mark.parametrize("listen", [listen, alisten], ids=["sync", "async"])


@both
def test_listen_returns_whether_the_subscription_is_confirmed(
    engine: Engine, store: Notes, listen: Callable[[Engine, float], bool]
) -> None:
    """[H7] When the subscriber answers, whatever it answers; [L19] [L30] one that doesn't isn't waited for."""
    for name, answers, seconds in (("me", True, 60), ("", True, 60), ("", False, 0.05)):
        store.own.name, store.own.answers = name, answers
        begin = clock.now()
        assert listen(engine, seconds) is bool(name)
        assert (0 if answers else seconds) <= clock.now() - begin < BUSY
    assert store.own.asked == ["inbox:"] * 3


# Effects


def test_engine_performs_every_effect(engine: Engine) -> None:
    """[F25] There is a handler for each effect, and an asynchronous one for each effect that may block."""
    values = (kind for kind in vars(effects).values() if isinstance(kind, type))
    kinds = {kind for kind in values if issubclass(kind, Effect) and kind is not Effect}
    assert set(engine.handlers) == kinds
    assert set(engine.ahandlers) == {kind for kind in kinds if not kind.local}


# Close and fork


def test_close_closes_backend_and_subscriber(engine: Engine, store: Notes) -> None:
    """[L25] Closing an engine closes its subscriber, too."""
    engine.close()
    assert store.own.events == store.events == ["close"]


def test_forked_child_has_an_engine_without_state(engine: Engine, store: Notes) -> None:
    """[H18] The child has neither the parent's connections nor its subscriber nor its waiters."""
    engine._queues._enqueue(Waiter(LockId(store.identity, "lock"), None, "inbox:"), engine)

    def child() -> None:
        assert store.events == store.own.events == ["fork"]
        assert not engine.expects_messages()

    in_child(child)
    assert store.events == store.own.events == []
    assert engine.expects_messages(), "[L25] without expected messages the subscriber is closed"

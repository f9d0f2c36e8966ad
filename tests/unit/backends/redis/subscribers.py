"""Subscribers on a real server, without the waiters that open them."""

from __future__ import annotations

import threading

import redis

from django_redis_locks import locks
from django_redis_locks.backends.redis.subscriber import RedisSubscriber
from django_redis_locks.core.tuning import Tuning

LOCKS, SHOP = "lock:{0}:inbox:", "shop:{0}:inbox:"
TICK = 0.15
"""`max_poll_interval` of these tests: seconds without a message before the subscriber checks its connection."""

ANSWER = 2.0
"""Seconds that it waits for the reply to a PING. In production this is `max_poll_interval` too."""


class RecordingHandler:
    """Records the messages of a subscriber."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.gaps = 0
        self.has_waiters = True

    @property
    def tuning(self) -> Tuning:
        return locks.tuning

    def on_message(self, number: str, lock: str) -> None:
        self.messages.append((number, lock))

    def on_reconnect(self) -> None:
        self.gaps += 1

    def expects_messages(self) -> bool:
        return self.has_waiters


class Opened:
    """A callback of `open`; records the channel name at the time of the call."""

    def __init__(self, subscriber: RedisSubscriber, channel: str) -> None:
        self._subscriber = subscriber
        self._channel = channel
        self._done = threading.Event()
        self.name = ""
        self.calls = 0

    def __call__(self) -> None:
        self.name = self._subscriber.channel_name(self._channel)
        self.calls += 1
        self._done.set()

    def wait(self) -> str:
        assert self._done.wait(20)
        return self.name


def begin(subscriber: RedisSubscriber, channel: str = LOCKS) -> Opened:
    """Open the subscriber without waiting."""
    opened = Opened(subscriber, channel)
    subscriber.open(channel, opened)
    return opened


def opened(subscriber: RedisSubscriber, channel: str = LOCKS) -> str:
    """Open the subscriber, and return its channel name after the callback."""
    return begin(subscriber, channel).wait()


def subscriptions(direct: redis.Redis, subscriber: RedisSubscriber, channel: str = LOCKS) -> int:
    """Return the number of connections that are subscribed to its channel."""
    ((_, number),) = direct.pubsub_numsub(channel + subscriber._id)
    return int(number)


def thread_of(subscriber: RedisSubscriber) -> threading.Thread:
    assert subscriber._thread is not None
    return subscriber._thread

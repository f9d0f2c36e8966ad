"""Inboxes on a real server, without the waiters that have them opened."""

from __future__ import annotations

import threading

import redis

from django_redis_locks import locks
from django_redis_locks.backends.redis.inbox import RedisInbox
from django_redis_locks.core.tuning import Tuning

LOCKS, SHOP = "lock:{0}:inbox:", "shop:{0}:inbox:"
TICK = 0.15
"""The cap of these tests: how long the inbox listens before it looks after itself."""

ANSWER = 2.0
"""How long it listens for the answer to a PING. By rights that is a cap too, which a busy machine may need for it."""


class Ear:
    """Whom the inbox tells."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.missings = 0
        self.waits = True

    @property
    def tuning(self) -> Tuning:
        return locks.tuning

    def told(self, number: str, lock: str) -> None:
        self.heard.append((number, lock))

    def missed(self) -> None:
        self.missings += 1

    def waiting(self) -> bool:
        return self.waits


class Opened:
    """Called when an inbox listens, or can't; notes what it is called then."""

    def __init__(self, inbox: RedisInbox, channel: str) -> None:
        self._inbox = inbox
        self._channel = channel
        self._done = threading.Event()
        self.name = ""
        self.calls = 0

    def __call__(self) -> None:
        self.name = self._inbox.hears(self._channel)
        self.calls += 1
        self._done.set()

    def wait(self) -> str:
        assert self._done.wait(20)
        return self.name


def begin(inbox: RedisInbox, channel: str = LOCKS) -> Opened:
    """Open it, and wait for nothing."""
    opened = Opened(inbox, channel)
    inbox.open(channel, opened)
    return opened


def opened(inbox: RedisInbox, channel: str = LOCKS) -> str:
    """Open it, and return its name."""
    return begin(inbox, channel).wait()


def subscriptions(direct: redis.Redis, inbox: RedisInbox, channel: str = LOCKS) -> int:
    """How many connections the server has for its name."""
    ((_, number),) = direct.pubsub_numsub(channel + inbox._id)
    return int(number)


def thread_of(inbox: RedisInbox) -> threading.Thread:
    assert inbox._thread is not None
    return inbox._thread

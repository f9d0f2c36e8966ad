"""A simple lock that is correct, and the classic defects, which the checker must find.

It polls, knows threads only, and has no more of a lock's API than the fuzz uses.
"""

from __future__ import annotations

import os
import time
import uuid
from time import monotonic as now

import redis

from django_redis_locks import LockLost
from tests.chaos.fuzz.worker import LEASE, PATIENCE

KEY = "plain"

TAKE = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and redis.call('INCR', KEYS[1] .. ':fence')"
FREE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"


class PlainLock:
    lease = LEASE
    """The lease in the store, in seconds."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url, decode_responses=True)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> PlainGrant | None:
        give_up = now() + (PATIENCE if timeout is None else timeout) * blocking
        token = f"{os.getpid()}:{uuid.uuid4()}"
        while True:
            sent = now()
            fence = self.take(token)
            if fence:
                return PlainGrant(self, token, fence, sent + 0.99 * LEASE)
            if now() >= give_up:
                return None
            time.sleep(0.002)

    def take(self, token: str) -> int | None:
        """The fence, if it was free."""
        return self.client.eval(TAKE, 1, KEY, token, int(self.lease * 1000))

    def free(self, token: str) -> bool:
        return bool(self.client.eval(FREE, 1, KEY, token))

    def holder(self) -> int | None:
        """The process that has it."""
        token = self.client.get(KEY)
        return int(token.partition(":")[0]) if token else None


class PlainGrant:
    def __init__(self, lock: PlainLock, token: str, fence: int, deadline: float) -> None:
        self._lock = lock
        self._token = token
        self._deadline = deadline
        self.fence = fence

    @property
    def lost(self) -> bool:
        return now() >= self._deadline

    def remaining(self) -> float:
        return max(0.0, self._deadline - now())

    def release(self) -> None:
        if not self._lock.free(self._token):
            raise LockLost("lost")


class Brief(PlainLock):
    """The server's lease is shorter than its holder believes: no longer than the section."""

    lease = 0.001


class Careless(PlainLock):
    """Releases the lock with any owner: after its own lease the next holder's."""

    def free(self, token: str) -> bool:
        return bool(self.client.delete(KEY))


LOCKS = {lock.__name__: lock for lock in (PlainLock, Brief, Careless)}

"""Waiting for what another thread does, with a bound; and the same story told to both faces."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from django_redis_locks import Grant, Lock, clock

LEASE = 9.0
"""Of a lock that is renewed `often`."""

BUSY = 8.0
"""Seconds that a busy machine may need on top of what is measured. What takes longer hangs."""


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> float:
    """Wait until the condition holds; returns how long it took."""
    begin = clock.now()
    while not condition():
        assert clock.now() - begin < seconds, f"not within {seconds} s"
        time.sleep(0.005)
    return clock.now() - begin


def renewed(*grants: Grant) -> None:
    """Wait until the lease of each is longer than it was."""
    ends = [grant.hold.deadline for grant in grants]
    eventually(lambda: all(grant.hold.deadline > end for grant, end in zip(grants, ends, strict=True)))


def elsewhere(function: Callable[[], object]) -> object:
    """Call it in another thread and return what it returns."""
    result: list[object] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join(30)
    return result[0]


class Sync:
    """A lock driven by a thread."""

    def acquire(self, lock: Lock, **how: object) -> Grant | None:
        return lock.acquire(**how)

    def release(self, grant: Grant) -> None:
        grant.release()

    def extend(self, grant: Grant, expire: float) -> None:
        grant.extend(expire)

    def close(self) -> None:
        pass


class Async:
    """The same lock driven by the tasks of a loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def acquire(self, lock: Lock, **how: object) -> Grant | None:
        return self._runner.run(lock.aacquire(**how))

    def release(self, grant: Grant) -> None:
        self._runner.run(grant.arelease())

    def extend(self, grant: Grant, expire: float) -> None:
        self._runner.run(grant.aextend(expire))

    def close(self) -> None:
        self._runner.close()


def fence_of(server: Any, key: str) -> int:
    """The fence of a lock, as it stands in the store."""
    fence, _, _ = server.get(key).split()[3].partition("@")
    return int(fence)

"""Sync and async calls of a lock behind one interface, and waits for renewals."""

from __future__ import annotations

import asyncio
from typing import Any

from django_redis_locks import Grant, Lock, clock
from tests.waiting import eventually

LEASE = 9.0
"""Seconds of the lease of a lock that is renewed with `frequent_renewal`."""


def renewed(*grants: Grant) -> None:
    """Wait until the lease of each grant is extended."""
    ends = [grant.hold.deadline for grant in grants]
    eventually(lambda: all(grant.hold.deadline > end for grant, end in zip(grants, ends, strict=True)))


class Sync:
    """A lock driven by a thread."""

    def acquire(self, lock: Lock, **how: object) -> Grant | None:
        return lock.acquire(**how)

    def release(self, grant: Grant) -> None:
        grant.release()

    def extend(self, grant: Grant, expire: float) -> None:
        grant.extend(expire)

    def sleep(self, seconds: float) -> None:
        clock.sleep(seconds)

    def close(self) -> None:
        pass


class Async:
    """A lock driven by the tasks of a loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def acquire(self, lock: Lock, **how: object) -> Grant | None:
        return self._runner.run(lock.aacquire(**how))

    def release(self, grant: Grant) -> None:
        self._runner.run(grant.arelease())

    def extend(self, grant: Grant, expire: float) -> None:
        self._runner.run(grant.aextend(expire))

    def sleep(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self._runner.close()


def fence_of(server: Any, key: str) -> int:
    """Return the fence of a lock in the store."""
    fence, _, _ = server.get(key).split()[3].partition("@")
    return int(fence)

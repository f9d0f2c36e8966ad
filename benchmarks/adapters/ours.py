"""This library, by its public API, with default settings: fence, holder and index are on."""

from __future__ import annotations

from typing import Any

from django_redis_locks import Grant, locks

from .base import LEASE, LONG, WAIT, Adapter, TaskAdapter


class Ours(Adapter):
    """With a fixed lease, as the other libraries."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def __init__(self, url: str) -> None:
        super().__init__(url)
        locks.configure({"default": {**self.location(url), "WAIT": WAIT, "EXPIRE": LEASE, **self.settings}})

    def location(self, url: str) -> dict[str, Any]:
        return {"LOCATION": url}

    def acquire(self, key: str) -> Grant:
        return locks.lock(key, expire=LEASE).acquire()

    def release(self, held: Grant) -> None:
        held.release()

    def hold(self, key: str, lease: float) -> Grant:
        return locks.lock(key, expire=lease, renew=True).acquire()

    def occupy(self, key: str) -> None:
        locks.lock(key, expire=LONG).acquire()

    def owns(self, held: Grant) -> bool:
        holder = locks.lock(held.key).holder()
        return not held.lost and holder is not None and holder.fence == held.fence


class OursRenewed(Ours):
    """Renewed while it is held: the default of `locks.lock(key)`."""

    def acquire(self, key: str) -> Grant:
        return locks.lock(key).acquire()


class OursBare(Ours):
    """Without the index and metadata that the admin shows."""

    settings = {"INDEX": False, "METADATA": ()}  # noqa: RUF012


REDLOCK = "django_redis_locks.backends.redlock.RedlockBackend"


class OursRedlock(Ours):
    def location(self, url: str) -> dict[str, Any]:
        return {"BACKEND": REDLOCK, "LOCATION": url.split()}


class OursFair(Ours):
    def acquire(self, key: str) -> Grant:
        return locks.fair_lock(key, expire=LEASE).acquire()


class OursSemaphore(Ours):
    limit = 1

    def acquire(self, key: str) -> Grant:
        return locks.semaphore(key, limit=self.limit, expire=LEASE).acquire()


class OursSemaphoreOf1000(OursSemaphore):
    """All permits but one are held, as if by other processes."""

    limit = 1000

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._occupied = ""

    def acquire(self, key: str) -> Grant:
        if key != self._occupied:
            self._occupied = key
            others = locks.semaphore(key, limit=self.limit, expire=LONG, auto_release=False)
            for _ in range(self.limit - 1):
                others.acquire()
        return super().acquire(key)


class OursRead(Ours):
    def acquire(self, key: str) -> Grant:
        return locks.rwlock(key, expire=LEASE).read.acquire()


class OursWrite(Ours):
    def acquire(self, key: str) -> Grant:
        return locks.rwlock(key, expire=LEASE).write.acquire()


class OursTasks(TaskAdapter):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        locks.configure({"default": {**self.location(url), "WAIT": WAIT, "EXPIRE": LEASE}})

    def location(self, url: str) -> dict[str, Any]:
        return {"LOCATION": url}

    async def acquire(self, key: str) -> Grant:
        return await locks.lock(key, expire=LEASE).aacquire()

    async def release(self, held: Grant) -> None:
        await held.arelease()


class OursRedlockTasks(OursTasks):
    def location(self, url: str) -> dict[str, Any]:
        return {"BACKEND": REDLOCK, "LOCATION": url.split()}

"""Waiters and holders on both faces: a pair that waits for one lock, and a crowd that is never done with it.

A pair is a thread and a task. They queue apart, and each is told by a message of its own. A crowd is threads and tasks of
two aliases that name one server differently: each has an inbox, a janitor and queues of its own, as two processes have.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

from django_redis_locks import Grant, Lock, LockLost, clock
from django_redis_locks.client import Locks
from tests.probes.engine import Event, Lost, event_listener
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

KEY = "lock:{0}:k:a"
LINE = "lock:{0}:w:a"
"""Where the lock "a" lives in the store, and where those stand who wait for it."""

INBOXES = "lock:*inbox:" + 12 * "?"
"""The channels of single processes."""

SECTION = 0.002
"""Seconds that one of a crowd holds the lock."""


def start(function: Callable[[], Any]) -> Future[Any]:
    """Call it in a thread of its own."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is the test's
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


class Had(NamedTuple):
    """A waiter got the lock, and gave it back."""

    fence: int
    at: float


def pair(lock: Lock, timeout: float = 60.0) -> list[Future[Had | None]]:
    """A thread and a task that wait for a lock and release it at once. None: it was busy until the end."""

    def thread() -> Had | None:
        grant = lock.acquire(timeout=timeout)
        if grant is None:
            return None
        had = Had(grant.fence, clock.now())
        grant.release()
        return had

    async def task() -> Had | None:
        grant = await lock.aacquire(timeout=timeout)
        if grant is None:
            return None
        had = Had(grant.fence, clock.now())
        await grant.arelease()
        return had

    return [start(thread), start(lambda: asyncio.run(task()))]


def told(grant: Grant, waiters: list[Future[Had | None]]) -> list[int]:
    """Release the lock; with `no_polling` a message only lets its waiters have it so soon. The fences of all, in order."""
    begin = clock.now()
    grant.release()
    passed = [waiter.result(20) for waiter in waiters]
    assert clock.now() - begin < BUSY
    return [grant.fence or 0, *sorted(had.fence for had in passed if had)]


def lined_up(server: RedisServer, number: int = 2) -> None:
    """Wait until so many queues stand in the line of the lock "a"."""
    eventually(lambda: server.command("ZCARD", LINE) == number)


def listening(server: RedisServer, number: int = 1) -> None:
    """Wait until so many inboxes are subscribed."""
    eventually(lambda: len(server.command("PUBSUB", "CHANNELS", INBOXES)) == number)


def asked(server: RedisServer) -> int:
    """How many script calls have come."""
    (line,) = (line for line in server.command("INFO", "commandstats").splitlines() if "cmdstat_evalsha:" in line)
    return int(line.split("calls=")[1].split(",")[0])


class Crowd:
    """So many threads, and so many tasks, of each alias; and one more lock of each, held and renewed all the time."""

    def __init__(self, aliases: list[Locks], size: int = 5) -> None:
        self.failures: list[Exception] = []
        self.overlaps: list[int] = []
        """The fences of holds that were not known as lost when another one began."""
        self.lost: set[int] = set()
        self.turns: Counter[str] = Counter()
        self.kept = 0
        """How many of those that were held all the time were released in the end."""
        self._inside: list[Grant] = []
        self._mutex = threading.Lock()
        self._end = threading.Event()
        self._locks = {
            f"{number} of alias {alias.settings.alias}": alias.lock("a", expire=60, renew=True, wait=40)
            for alias in aliases
            for number in range(size)
        }
        self._kept = [alias.lock(f"kept:{number}", expire=30, renew=True) for number, alias in enumerate(aliases)]

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Crowd]:
        """While they all come and go; it ends when everybody has left."""
        with event_listener(self._hear):
            self._grants = [lock.acquire() for lock in self._kept]
            self._workers = [
                start(lambda name=name, lock=lock: self._thread(name, lock)) for name, lock in self._locks.items()
            ]
            self._workers.append(start(lambda: asyncio.run(self._tasks())))
            try:
                self.goes_on()
                yield self
            finally:
                self.leaves()

    def leaves(self) -> None:
        """Let nobody come any more, and wait until all have left."""
        self._end.set()
        for worker in self._workers:
            worker.result(60)
        while self._grants:
            try:
                self._grants.pop().release()
                self.kept += 1
            except LockLost:
                pass

    def goes_on(self) -> None:
        """Wait until each of them has had the lock once more: before the end of a lease, or of a cap, which would help too."""
        before = dict(self.turns)
        everybody = [f"{kind} {name}" for kind in ("thread", "task") for name in self._locks]
        eventually(lambda: all(self.turns[name] > before.get(name, 0) for name in everybody))

    def _thread(self, name: str, lock: Lock) -> None:
        while not self._end.is_set():
            try:
                with lock as grant:
                    self._enter(grant, f"thread {name}")
                    self._end.wait(SECTION)
                    self._leave(grant)
            except Exception as error:  # noqa: BLE001 - the test looks at them
                self.failures.append(error)
                self._end.wait(0.01)

    async def _tasks(self) -> None:
        await asyncio.gather(*(self._task(name, lock) for name, lock in self._locks.items()))

    async def _task(self, name: str, lock: Lock) -> None:
        while not self._end.is_set():
            try:
                async with lock as grant:
                    self._enter(grant, f"task {name}")
                    await asyncio.sleep(SECTION)
                    self._leave(grant)
            except Exception as error:  # noqa: BLE001 - as above
                self.failures.append(error)
                await asyncio.sleep(0.01)

    def _enter(self, grant: Grant, name: str) -> None:
        with self._mutex:
            self.overlaps += [other.fence for other in self._inside if not other.lost]
            self._inside.append(grant)
            self.turns[name] += 1

    def _leave(self, grant: Grant) -> None:
        with self._mutex:
            self._inside.remove(grant)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Lost):
            self.lost.add(event.fence)

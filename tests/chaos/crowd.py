"""Waiters and holders in threads and tasks: a pair that waits for one lock, and a crowd that takes it again and again.

A pair is a thread and a task. They wait in separate queues, and each is woken by a message of its own. A crowd consists
of threads and tasks of two aliases that name one server differently: each alias has a subscriber, a maintenance thread
and queues of its own, as two processes have.
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
WAITERS = "lock:{0}:w:a"
"""The store's keys of the lock "a" and of its waiters."""

CHANNELS = "lock:*inbox:" + 12 * "?"
"""The channels of single processes."""

SECTION = 0.002
"""Seconds that a member of a crowd holds the lock."""


def start(function: Callable[[], Any]) -> Future[Any]:
    """Call a function in a new thread."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - the test handles it
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


class Passed(NamedTuple):
    """A waiter acquired and released the lock."""

    fence: int
    at: float


def pair(lock: Lock, timeout: float = 60.0) -> list[Future[Passed | None]]:
    """Start a thread and a task that acquire a lock and release it at once. The result is None if the wait timed
    out."""

    def thread() -> Passed | None:
        grant = lock.acquire(timeout=timeout)
        if grant is None:
            return None
        had = Passed(grant.fence, clock.now())
        grant.release()
        return had

    async def task() -> Passed | None:
        grant = await lock.aacquire(timeout=timeout)
        if grant is None:
            return None
        had = Passed(grant.fence, clock.now())
        await grant.arelease()
        return had

    return [start(thread), start(lambda: asyncio.run(task()))]


def release_and_collect(grant: Grant, waiters: list[Future[Passed | None]]) -> list[int]:
    """Release the lock, and return the fences of the grant and of all waiters, in order. With `no_polling` only a
    message lets the waiters acquire the lock in time."""
    begin = clock.now()
    grant.release()
    passed = [waiter.result(20) for waiter in waiters]
    assert clock.now() - begin < BUSY
    return [grant.fence or 0, *sorted(had.fence for had in passed if had)]


def wait_until_registered(server: RedisServer, number: int = 2) -> None:
    """Wait until this number of queues is registered for the lock "a"."""
    eventually(lambda: server.command("ZCARD", WAITERS) == number)


def wait_until_subscribed(server: RedisServer, number: int = 1) -> None:
    """Wait until this number of processes is subscribed, or more: a holder subscribes after a second."""
    eventually(lambda: len(server.command("PUBSUB", "CHANNELS", CHANNELS)) >= number)


def script_calls(server: RedisServer) -> int:
    """Return the number of script calls that the server has executed."""
    (line,) = (line for line in server.command("INFO", "commandstats").splitlines() if "cmdstat_evalsha:" in line)
    return int(line.split("calls=")[1].split(",")[0])


class Crowd:
    """`size` threads and `size` tasks of each alias that share one lock; and a further lock of each alias, held and
    renewed all the time."""

    def __init__(self, aliases: list[Locks], size: int = 5) -> None:
        self.failures: list[Exception] = []
        self.overlaps: list[int] = []
        """The fences of holds that weren't known as lost when the next hold began."""
        self.lost: set[int] = set()
        self.turns: Counter[str] = Counter()
        self.kept = 0
        """The number of the further locks that were still held in the end."""
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
    def running(self) -> Iterator[Crowd]:
        """Run all members during the block, and wait for them after it."""
        with event_listener(self._on_event):
            self._grants = [lock.acquire() for lock in self._kept]
            self._workers = [
                start(lambda name=name, lock=lock: self._thread(name, lock)) for name, lock in self._locks.items()
            ]
            self._workers.append(start(lambda: asyncio.run(self._tasks())))
            try:
                self.wait_for_progress()
                yield self
            finally:
                self.stop()

    def stop(self) -> None:
        """Stop all members, and wait until they have released the lock."""
        self._end.set()
        for worker in self._workers:
            worker.result(60)
        while self._grants:
            try:
                self._grants.pop().release()
                self.kept += 1
            except LockLost:
                pass

    def wait_for_progress(self) -> None:
        """Wait until each member has held the lock once more, earlier than a lease or a poll interval ends."""
        before = dict(self.turns)
        members = [f"{kind} {name}" for kind in ("thread", "task") for name in self._locks]
        eventually(lambda: all(self.turns[name] > before.get(name, 0) for name in members))

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

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Lost):
            self.lost.add(event.fence)

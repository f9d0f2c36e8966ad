"""Worker processes that execute jobs with locks.

    worker = workers("waiter", max_poll_interval=60)            # the fixture: its connections are called so, with this
    Tuning future = worker.start(acquire, "a")           # in a thread of that process; a coroutine function: a task of
    its loop worker.call(release, "a")                     # the same, and waits for what it returns

The jobs are the functions in ``jobs``: their names are sent to the worker, and their results are sent back. A worker is
forked from a server process with all modules loaded and without locks, which takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import redis
from django.conf import settings

from django_redis_locks import clock, locks

PATIENCE = 30.0
"""Seconds that a test waits for an expected result."""

CAP = 60.0
"""A `max_poll_interval` that no waiter of a test reaches."""

AT_ONCE = 15.0
"""Seconds within which a woken waiter must acquire: far more than it needs, far less than `CAP`."""

WAITERS = "lock:{0}:w:a"
"""The store's key of the waiters of the lock "a"."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.jobs", "asyncio.runners", "redis.asyncio"])


class Gates(dict[str, threading.Event]):
    """Events by name, created at the first access; two threads that do so at once get the same one."""

    def __missing__(self, name: str) -> threading.Event:
        return self.setdefault(name, threading.Event())


class Worker:
    """A worker process, as the test controls it."""

    def __init__(self, url: str, name: str, tuning: dict[str, float]) -> None:
        self.name = name
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_main, args=(theirs, url, name, tuning), daemon=True)
        self._process.start()
        theirs.close()
        self.pid: int = self._process.pid
        self._futures: list[Future[Any]] = []
        self._mutex = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a job."""
        future: Future[Any] = Future()
        with self._mutex:
            self._futures.append(future)
            self._pipe.send((len(self._futures) - 1, job, args, kwargs))
        return future

    def call(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a job, and return its result."""
        return self.start(job, *args, **kwargs).result(PATIENCE)

    def number(self, future: Future[Any]) -> int:
        """Return the number of a job in its process."""
        return self._futures.index(future)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._process.kill()
        self._process.join(PATIENCE)

    def close(self) -> None:
        self.kill()
        self._reader.join(PATIENCE)
        self._pipe.close()
        self._process.close()

    def _read(self) -> None:
        while True:
            try:
                number, ok, result = self._pipe.recv()
            except (EOFError, OSError):
                break
            (self._futures[number].set_result if ok else self._futures[number].set_exception)(result)
        for future in self._futures:
            if not future.done():
                future.set_exception(ProcessLookupError(f"the worker {self.name} has ended"))


def wait_until_registered(direct: redis.Redis, size: int, waiters: str = WAITERS) -> None:
    """Wait until this number of queues is registered. The mark of a fair lock, at place 0, isn't one."""
    deadline = clock.now() + PATIENCE
    while direct.zcount(waiters, "(0", "inf") != size:
        assert clock.now() < deadline, f"in line are {direct.zrange(waiters, 0, -1)}, not {size}"
        time.sleep(0.0005)


def connected(direct: redis.Redis, name: str) -> int:
    """Return the number of connections with the name of a worker."""
    return sum(client["name"] == name for client in direct.client_list())


# In the worker process

tasks: dict[int, asyncio.Task[Any]] = {}
"""The tasks of the jobs that are coroutine functions, by their numbers."""


def _main(pipe: Connection, url: str, name: str, tuning: dict[str, Any]) -> None:
    settings.configure(REDIS_LOCKS={"default": {"LOCATION": url, "OPTIONS": {"client_name": name}}})
    locks.tuning = replace(locks.tuning, **tuning)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    mutex = threading.Lock()

    def answer(number: int, ok: bool, result: Any) -> None:
        with mutex:
            pipe.send((number, ok, result))

    def do(number: int, job: Callable[..., Any], args: Any, kwargs: Any) -> None:
        try:
            answer(number, True, job(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            answer(number, False, error)

    async def ado(number: int, job: Callable[..., Any], args: Any, kwargs: Any) -> None:
        tasks[number] = task = asyncio.create_task(job(*args, **kwargs))
        await asyncio.wait([task])
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        answer(number, error is None, task.result() if error is None else error)

    while True:
        try:
            request = pipe.recv()
        except EOFError:
            os._exit(0)
        if inspect.iscoroutinefunction(request[1]):
            asyncio.run_coroutine_threadsafe(ado(*request), loop)
        else:
            threading.Thread(target=do, args=request, daemon=True).start()

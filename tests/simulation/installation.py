"""Replaces the package's access to clock, sleep, threads, process ids and random numbers by those of the simulation."""

from __future__ import annotations

import logging
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import random
from threading import get_ident
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from celery_locks import beat, job_record, run_permit, submission, submit, take_key, task_settings
from django_redis_locks.core import clock, events, forks, owners, tokens
from django_redis_locks.core.background_thread import BackgroundThread
from django_redis_locks.core.registry import registry
from django_redis_locks.engine import local_queues, maintenance, outages, wait_queue
from django_redis_locks.engine.engine import Engine
from django_redis_locks.primitives.shared import acquire, multi_acquire, multi_release, release
from tests.simulation.scheduler import Died, current

if TYPE_CHECKING:
    from django_redis_locks.client import Locks
    from tests.simulation.network import Server
    from tests.simulation.scheduler import Scheduler


class Installation:
    """The replacements that all simulations of a test share; they delegate to the running simulation."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        self.on_event: Callable[[events.Event], object] = lambda event: None
        self._server: Server | None = None
        self._thread = get_ident()
        self._getpid = os.getpid
        self._forks_pid = forks.pid
        self._start_thread = BackgroundThread._begin
        self._here = owners.here
        self._number = count(1).__next__

    def _is_foreign(self) -> bool:
        """Whether this is another thread of the tests, which uses the machine's clock."""
        return self.scheduler is None or get_ident() != self._thread

    def now(self) -> float:
        if self._is_foreign():
            return clock.SYSTEM.now()
        process = self.scheduler.process
        return self.scheduler.now if process is None else process.now()

    def wall(self) -> float:
        if self._is_foreign():
            return clock.SYSTEM.wall()
        process = self.scheduler.process
        return self._server.wall() if process is None else process.wall()

    def wait(self, lock: Any, seconds: float) -> None:
        if self._is_foreign():
            clock.SYSTEM.wait(lock, seconds)
        else:
            current().wait(lock, seconds)

    def random(self) -> float:
        """A random number. A waiter left by another test must not take one from the simulation's sequence."""
        return random() if self._is_foreign() else self.scheduler.random.random()

    def getpid(self) -> int:
        if self._is_foreign() or self.scheduler.process is None:
            return self._getpid()
        return self.scheduler.process.pid

    def forks_pid(self) -> int:
        """The id of the process. Another thread of the tests must not take a simulated process for its fork, and reset
        its state."""
        return self._getpid() if self._is_foreign() else self._forks_pid()

    def sleep(self, seconds: float) -> None:
        if self._is_foreign():
            sleep(seconds)
        else:
            current().sleep(seconds)

    @property
    def owner(self) -> Any:
        """The running thread, as the owner of locks, in place of ``here``."""
        return self._here.owner if self._is_foreign() else current().owner

    def start_thread(self, daemon: BackgroundThread) -> None:
        if self._is_foreign():
            self._start_thread(daemon)
        else:
            daemon._thread = self.scheduler.process.thread("maintenance", daemon._work)

    def __getitem__(self, alias: str) -> Locks:
        """The locks of the running process, in place of ``locks``."""
        return self.scheduler.process.locks

    def uuid(self) -> str:
        return f"i{self._number()}"

    def receive(self, event: events.Event) -> None:
        if not self._is_foreign():
            self.on_event(event)

    def begin(self, scheduler: Scheduler, server: Server) -> None:
        """Start another simulation."""
        self.scheduler, self._server = scheduler, server
        outages._outages.clear()
        submission._duplicated.clear()
        for grant in registry.grants():  # of processes that were killed, or that never released
            registry.forget(grant)
        wait_queue.mint_number = count(1).__next__
        number = self._number = count(1).__next__
        tokens._tokens._source = "t", number
        scheduler.enter = _entering(scheduler)

    def end(self) -> None:
        self.scheduler = None


def _entering(scheduler: Scheduler) -> Callable[[Any], None]:
    def enter(process: Any) -> None:
        scheduler.process = process
        if process is not None:
            forks.known_pid = process.pid

    return enter


class ForkAware:
    """The objects that a simulated fork resets: of the interpreter's engines, only that of the process."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._others = weakref.WeakSet(aware for aware in forks._aware if not isinstance(aware, Engine))

    def add(self, aware: Any) -> None:
        if not isinstance(aware, Engine):
            self._others.add(aware)

    def __iter__(self) -> Iterator[Any]:
        yield from self._others
        yield self._installation.scheduler.process.engine


class FailOnLoggedError(logging.Handler):
    """Reports exceptions that the package only logs as violations."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(logging.ERROR)
        self._installation = installation

    def emit(self, record: logging.LogRecord) -> None:
        installation = self._installation
        if not installation._is_foreign() and record.exc_info and not isinstance(record.exc_info[1], Died):
            installation.scheduler.violation(f"it is logged that {record.getMessage()}: {record.exc_info[1]!r}")


def _calling(start: Callable[[BackgroundThread], None]) -> Callable[[BackgroundThread], None]:
    """Wrap a bound method in a function, so that it can replace a method of a class."""

    def begin(self: BackgroundThread) -> None:
        start(self)

    return begin


@contextmanager
def installed() -> Iterator[Installation]:
    """Install the replacements for any number of consecutive simulations."""
    installation = Installation()
    replaced: list[tuple[Any, str, Any]] = [
        (os, "getpid", installation.getpid),
        (acquire, "getpid", installation.getpid),
        (release, "getpid", installation.getpid),
        (multi_acquire, "getpid", installation.getpid),
        (multi_release, "getpid", installation.getpid),
        (forks, "known_pid", forks.known_pid),
        (forks, "pid", installation.forks_pid),
        (forks, "_aware", ForkAware(installation)),
        (BackgroundThread, "_begin", _calling(installation.start_thread)),
        (maintenance, "time", SimpleNamespace(sleep=installation.sleep)),
        (owners, "here", installation),
        (tokens._tokens, "_source", tokens._tokens._source),
        (local_queues, "random", installation.random),
        (multi_acquire, "random", installation.random),
        (wait_queue, "mint_number", wait_queue.mint_number),
        (job_record, "locks", installation),
        (run_permit, "locks", installation),
        (task_settings, "locks", installation),
        (beat, "current", lambda name: None),
        (take_key, "uuid", installation.uuid),
        (submit, "uuid", installation.uuid),
    ]
    real = [(where, name, getattr(where, name)) for where, name, _ in replaced]
    log, jobs_log = logging.getLogger("django_redis_locks"), logging.getLogger("celery_locks")
    handler, level, propagates, jobs_level = FailOnLoggedError(installation), log.level, log.propagate, jobs_log.level
    for where, name, value in replaced:
        setattr(where, name, value)
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    jobs_log.setLevel(logging.CRITICAL)
    events.listen(installation.receive)
    before = clock.install(installation)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* belongs to the process that this one was forked from", RuntimeWarning)
            yield installation
    finally:
        installation.end()
        clock.install(before)
        events.listeners.remove(installation.receive)
        log.removeHandler(handler)
        log.setLevel(level)
        jobs_log.setLevel(jobs_level)
        log.propagate = propagates
        for where, name, value in real:
            setattr(where, name, value)

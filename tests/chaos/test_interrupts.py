"""An exception at every point of the code: raised by a signal handler, or thrown into a cancelled task.

A trace function counts the executed lines of the package during a scenario, and raises at one of them. The scenario is
repeated, with the exception one line later, until it completes. Afterwards no lock, no local queue and no registered
waiter may be left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import linecache
import logging
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest
import redis

import django_redis_locks
from django_redis_locks import LockLost, clock, locks
from django_redis_locks.cache import current_load, get_or_load, get_or_load_many
from django_redis_locks.client import Locks
from tests.cache.backends import LOCMEM, REDIS
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import followers, loads_in_flight, reads_in_flight
from tests.probes.client import is_registered, queue_count
from tests.probes.tuning import Tune


class SoftTimeLimitExceeded(Exception):
    """Like Celery's: an Exception, which an `except Exception` would catch."""


PACKAGE = str(Path(django_redis_locks.__file__).parent)

OUT_OF_REACH = {"__exit__", "release"}
"""An exception at the first line of these is raised before any handler in them is active."""


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Disable the garbage collector: objects that an interruption leaves must not be collected during the next
    scenario. One may be an unassigned connection; the collector may finalize its socket before its owner."""
    gc.disable()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.enable()


@pytest.fixture(params=["memory", "redis", "redlock"])
def client(request: pytest.FixtureRequest, settings: Any) -> Locks:
    """An alias with loaded scripts and an idle connection."""
    entry = {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": request.node.name}
    if request.param == "redis":
        entry = {"LOCATION": request.getfixturevalue("redis_url")}
    if request.param == "redlock":
        entry = {
            "BACKEND": "django_redis_locks.backends.redlock.RedlockBackend",
            "LOCATION": request.getfixturevalue("redlock_location"),
        }
    settings.REDIS_LOCKS = {"default": {**entry, "EXPIRE": 30}}
    with locks["default"].lock("warm up"):
        pass
    return locks["default"]


class InterruptionAtLine:
    """Raises at the n-th line of the package that this thread executes."""

    def __init__(self, number: int, error: type[BaseException]) -> None:
        self._left = number
        self._error = error
        self._begun: set[object] = set()
        self.raised = False
        self.where = ""

    def __enter__(self) -> Self:
        sys.settrace(self._frame)
        return self

    def __exit__(self, *about: object) -> None:
        sys.settrace(None)
        self._begun.clear()

    def _frame(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            begun = frame, frame.f_lineno
            if not self._out_of_reach(frame, begun):
                if self._left == 0:
                    self.raised = True
                    self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                    sys.settrace(None)
                    raise self._error
                self._left -= 1
            self._begun |= {frame, begun}
        return self._line

    def _out_of_reach(self, frame: FrameType, begun: tuple[FrameType, int]) -> bool:
        """No signal is handled at a ``try:``, nor between the body of a ``try`` and the first call of its ``finally``, nor
        between the body of a ``with`` and its end, where a mutex is released: that is when a line with a ``with`` comes
        for the second time."""
        if frame.f_code.co_name in OUT_OF_REACH and frame not in self._begun:
            return True
        before, text = (
            linecache.getline(frame.f_code.co_filename, number).strip()
            for number in (frame.f_lineno - 1, frame.f_lineno)
        )
        return text == "try:" or before == "finally:" or (begun in self._begun and text.startswith("with "))


def at_every_line(
    nothing_left: Callable[[str], object],
    error: type[BaseException],
    scenario: Callable[[InterruptionAtLine], object],
) -> None:
    number = 0
    while True:
        interruption = InterruptionAtLine(number, error)
        try:
            scenario(interruption)
        except error:
            assert interruption.raised
        nothing_left(interruption.where)
        if not interruption.raised:
            break
        number += 1
    assert number > 50, "it hardly ran"


def holders_on(url: str) -> list[Any]:
    with redis.Redis.from_url(url) as server:
        return list(server.scan_iter("*:k:*"))


def nothing_left(client: Locks, where: str) -> None:
    client.engine.wait_until_idle(20)
    lock = client.lock("a")
    if lock.locked():
        until = clock.now() + 10
        while lock.locked():
            assert clock.now() < until, f"locked after {where}"
    assert not is_registered(lock), where
    if isinstance(client.settings.location, list):  # also what a minority of the servers has
        eventually(lambda: not any(map(holders_on, client.settings.location)), 10)
    assert queue_count(client) == 0, where


def calls(client: Locks, interruption: InterruptionAtLine) -> None:
    lock = client.lock("a")
    with interruption:
        lock.acquire()
        lock.release()


def block(client: Locks, interruption: InterruptionAtLine) -> None:
    with interruption, client.lock("a"):
        pass


def reentry(client: Locks, interruption: InterruptionAtLine) -> None:
    """An interruption of the inner block leaves the outer one held."""
    lock = client.rlock("a")
    with lock as outer:
        try:
            with interruption, lock:
                pass
        finally:
            outer.ensure_held(confirm=True)


@pytest.mark.parametrize("scenario", [calls, block, reentry])
def test_interrupted_call_or_block_leaves_nothing(
    client: Locks, scenario: Callable[[Locks, InterruptionAtLine], None], request: pytest.FixtureRequest
) -> None:
    """[L15] [L16] [E7] [L4] [H15] [H17] An interrupted acquire leaves nothing; the maintenance thread completes an
    interrupted release. Calls and blocks run the same lines, each with one of the two exceptions."""
    on_redis = "redis://" in str(client.settings.location)
    error = KeyboardInterrupt if on_redis is (scenario is block) else SoftTimeLimitExceeded
    at_every_line(partial(nothing_left, client), error, lambda interruption: scenario(client, interruption))


# In an interrupted connect() only a local variable of redis-py has the socket: the garbage collector closes it, and warns
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("client", "where"), [("memory", "here"), ("redis", "elsewhere")], indirect=["client"])
def test_interrupted_waiter_passes_the_lock_on(client: Locks, where: str) -> None:
    """[H3] [H9] [L29] Whether the waiter was woken, was handed the lock, or neither: the next waiter acquires the lock,
    and no waiter stays registered."""

    def scenario(interruption: InterruptionAtLine) -> None:
        held, asked, done = threading.Event(), threading.Event(), threading.Event()

        def hold() -> None:
            with contextlib.suppress(LockLost), client.lock("a"):
                held.set()
                while not done.is_set() and queue_count(client) == 0:
                    asked.wait(0.0005)
                if where == "elsewhere":  # as from another process, through the store only
                    client.lock("a").force_release()

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(20)
        try:
            with interruption:
                grant = client.lock("a").acquire()
            grant.release()
        finally:
            done.set()
            thread.join(20)

    at_every_line(partial(nothing_left, client), KeyboardInterrupt, scenario)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that was being created
@pytest.mark.parametrize("kind", ["locmem", "redis"])
@pytest.mark.parametrize("state", ["missing", "stale", "many"])
def test_interrupted_load_keeps_no_caller_waiting(
    kind: str, state: str, settings: Any, redis_url: str, tune: Tune
) -> None:
    """[S22] Neither the caller that waits for it in its process nor later ones."""
    entry = {"BACKEND": LOCMEM, "LOCATION": f"interrupted {state}"}
    settings.CACHES = {"default": {"BACKEND": REDIS, "LOCATION": redis_url} if kind == "redis" else entry}
    tune(load_lease=0.2)
    options: dict[str, Any] = {"ttl": 60, "stale": 600, "wait_stale": PATIENCE}
    keys = map(str, itertools.count())  # the collector is disabled, and may keep a claim of an interrupted load

    def get(key: str, loader: Callable[[], str]) -> Any:
        if state == "many":
            return get_or_load_many([f"k{key}", f"j{key}"], lambda keys: dict.fromkeys(keys, loader()), **options)
        return get_or_load(f"k{key}", loader, **options)

    def scenario(interruption: InterruptionAtLine) -> None:
        key = next(keys)
        follower = threading.Thread(target=get, args=(key, lambda: "second"))

        def load() -> str:
            follower.start()
            eventually(lambda: followers("default") or not follower.is_alive())
            return "first"

        if state == "stale":
            get_or_load(f"k{key}", lambda: "old", ttl=0.001, jitter=0, stale=600)
        try:
            with interruption:
                get(key, load)
        finally:
            if follower.ident is not None:
                follower.join(PATIENCE)
                assert not follower.is_alive(), f"a caller waits after {interruption.where}"

    def nothing_left(where: str) -> None:
        assert (loads_in_flight("default"), reads_in_flight("default"), current_load()) == ({}, {}, None), where

    at_every_line(nothing_left, KeyboardInterrupt, scenario)


class Cancelling:
    """Awaits a coroutine, and throws CancelledError into it at its n-th suspension and at each later one."""

    def __init__(self, coroutine: Any, at: int, times: int) -> None:
        self._coroutine = coroutine
        self._at = at
        self._times = times
        self.raised = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        suspensions = 0
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            error = None
            if self._at <= suspensions < self._at + self._times:
                self.raised = True
                error = asyncio.CancelledError()
                if waited_for is not None:
                    waited_for._asyncio_future_blocking = False
            else:
                try:
                    value = yield waited_for
                except BaseException as thrown:  # noqa: BLE001 - passed on
                    error = thrown
            suspensions += 1


@pytest.mark.parametrize("contended", [False, True])
def test_task_cancelled_at_every_await_leaves_nothing(client: Locks, contended: bool) -> None:
    """[L16] [H3] [E7] [D40] Once, and again while the first cancellation is handled; in acquire, in release and in the
    queue."""

    async def scenario(at: int, times: int) -> bool:
        held, free = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with client.lock("a"):
                held.set()
                await free.wait()

        async def work() -> None:
            async with client.lock("a"):
                pass

        async def cancelled() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling

        holder = asyncio.create_task(hold()) if contended else None
        if holder is not None:
            await held.wait()
            asyncio.get_running_loop().call_later(0.002, free.set)
        cancelling = Cancelling(work(), at, times)
        task = asyncio.create_task(cancelled())
        await asyncio.wait([task])
        assert cancelling.raised or task.exception() is None
        if holder is not None:
            await holder
        return cancelling.raised

    with asyncio.Runner() as runner:
        for times in (1, 2):
            number = 0
            while runner.run(scenario(number, times)):
                nothing_left(client, f"suspension {number}")
                number += 1
            assert number or not contended, "it was never suspended"


@pytest.fixture
def raise_after() -> Iterator[Callable[[float], None]]:
    """`raise_after(0.001)`: SIGALRM raises KeyboardInterrupt after this many seconds, or a little later if Python's
    logging is executing, which redis-py calls for each connection: up to Python 3.12 its mutex would stay locked."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == logging.__file__:
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_it)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that was being created
@pytest.mark.parametrize("client", ["redis", "redlock"], indirect=True)
def test_signal_during_a_system_call_leaves_nothing(client: Locks, raise_after: Callable[[float], None]) -> None:
    """[H21] [L16] Inside system calls, which no trace function sees: send, recv, and the sleep of a waiter."""
    rest = threading.Event()
    end = clock.now() + 1.5
    strikes = out_of_reach = 0
    while clock.now() < end or strikes <= 50:
        assert clock.now() < end + 30
        try:
            try:
                raise_after(random.uniform(0.0001, 0.002))
                with client.lock("b"):
                    pass
                with client.lock("b"):
                    time.sleep(0.0005)
            finally:
                raise_after(0)
        except KeyboardInterrupt:
            strikes += 1
            rest.wait(0.001)
            if client.lock("b").owned():  # at the first instruction of __exit__ or acquire's caller: out of reach
                client.lock("b").release()
                out_of_reach += 1
    assert out_of_reach < strikes / 10
    assert queue_count(client) == 0
    assert client.lock("c", wait=0).acquire(), "no connection has an old answer waiting"

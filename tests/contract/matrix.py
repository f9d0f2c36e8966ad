"""The one table of what the suites are run on: every backend, behind both faces of a lock.

A suite is written once, in terms of *callers*. A caller is somebody who may own a lock: a thread that calls the methods,
or a task that awaits their ``a`` twins. ``alice(lock.acquire, timeout=1)`` is ``lock.acquire(timeout=1)`` in Alice's
thread, or ``await lock.aacquire(timeout=1)`` in Alice's task.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from django_redis_locks import Grant, Lock, locks
from django_redis_locks.core import clock
from django_redis_locks.core.effects import Command, Place, Seat
from django_redis_locks.primitives.record import RecordRef

PATIENCE = 30.0
"""Seconds after which a test that waits for something has failed."""

# The backends: what REDIS_LOCKS says of each.


def memory(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}


def redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"LOCATION": request.getfixturevalue("redis_url")}


def cluster(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One node in cluster mode: a key that a script doesn't declare, or one in another slot, fails at once."""
    return {"LOCATION": request.getfixturevalue("cluster_url")}


def faulty(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A server behind a bad network, see ``network_faults.py``. Tests that it would disturb, because they measure time or count
    commands, carry the marker ``exact``, with the reason."""
    exact = request.node.get_closest_marker("exact")
    if exact is not None:
        pytest.skip(f"behind a bad network: {exact.args[0]}")
    return {"LOCATION": request.getfixturevalue("bad_network")}


# The faces: who calls, and how.


class Caller(Protocol):
    """Somebody who may own a lock: one thread, or one task, with one context."""

    def start(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call and return its future. A caller makes one call at a time, in their order."""

    def halfway(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call as one who shares only half of what makes an owner: the thread without the context, or the context
        without the task."""

    def close(self) -> None: ...

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call and return what is returned."""


class Thread:
    """A caller who is a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._executor = ThreadPoolExecutor(1)

    def start(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return self._executor.submit(method, *args, **kwargs)

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.start(method, *args, **kwargs).result(PATIENCE)

    def halfway(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self(contextvars.Context().run, method, *args, **kwargs)

    def close(self) -> None:
        self._executor.shutdown()


class Task:
    """A caller who is a task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: asyncio.Queue[tuple[Future[Any], Callable[[], Any]] | None] = asyncio.Queue()
        self._life = asyncio.run_coroutine_threadsafe(self._live(), loop)

    async def _live(self) -> None:
        while (call := await self._calls.get()) is not None:
            future, function = call
            try:
                result = function()
                future.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

    def start(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        call = twin(method)
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (future, lambda: call(*args, **kwargs)))
        return future

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.start(method, *args, **kwargs).result(PATIENCE)

    def halfway(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def child() -> Any:
            return await self._loop.create_task(twin(method)(*args, **kwargs))

        return self(child)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        self._life.result(PATIENCE)


def twin(method: Callable[..., Any]) -> Callable[..., Any]:
    """``x.acquire`` -> ``x.aacquire``, ``x.__enter__`` -> ``x.__aenter__``; what has no twin does no I/O."""
    name = getattr(method, "__name__", "")
    other = f"__a{name[2:]}" if name.startswith("__") else f"a{name}"
    owner = getattr(method, "__self__", sys.modules.get(getattr(method, "__module__", None) or ""))
    found: Callable[..., Any] = getattr(owner, other, method)
    return found


@contextmanager
def inside(caller: Caller, lock: Lock | Grant) -> Iterator[Grant]:
    """``with lock as grant:`` or ``async with lock as grant:``, as the caller's; the body is the test's."""
    grant = caller(lock.__enter__)
    try:
        yield grant
    except BaseException as error:
        caller(lock.__exit__, type(error), error, error.__traceback__)
        raise
    caller(lock.__exit__, None, None, None)


BACKENDS = [
    pytest.param(memory, id="memory"),
    pytest.param(redis, id="redis"),
    pytest.param(cluster, id="cluster"),
    pytest.param(faulty, id="faulty"),
]
FACES = [pytest.param(Thread, id="sync"), pytest.param(Task, id="async")]

_OWN = object()
_keys = (f"thing:{number}" for number in itertools.count(1))


class Face:
    """What a suite is given: the locks of one backend, and callers of one kind."""

    def __init__(self, entry: dict[str, Any], settings: Any, kind: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._entry = entry
        self._settings = settings
        self._kind = kind
        self._loop = loop
        self._callers: list[Caller] = []
        self.key = next(_keys)
        """A key that no other test has."""
        self.configure()

    @property
    def is_async(self) -> bool:
        return self._kind is Task

    def configure(self, **entry: Any) -> None:
        """Set options of the alias, such as ``METADATA``."""
        self._settings.REDIS_LOCKS = {"default": {**self._entry, **entry}}

    def lock(self, key: Any = _OWN, **options: Any) -> Lock:
        return locks.lock(self.key if key is _OWN else key, **options)

    def rlock(self, **options: Any) -> Lock:
        return locks.rlock(self.key, **options)

    def record(self) -> RecordRef:
        return locks.record(self.key)

    def caller(self) -> Caller:
        caller: Caller = self._kind(self._loop)
        self._callers.append(caller)
        return caller

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    @contextmanager
    def commands(self) -> Iterator[list[str]]:
        """The names of the commands that callers send meanwhile. What the janitor sends isn't among them."""
        engine = locks["default"].engine
        names: list[str] = []
        call, acall = engine.handlers[Command], engine.ahandlers[Command]

        def count(command: Command[Any]) -> Any:
            names.append(command.name)
            return call(command)

        def acount(command: Command[Any]) -> Any:
            names.append(command.name)
            return acall(command)

        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(engine.handlers, Command, count)
            patch.setitem(engine.ahandlers, Command, acount)
            yield names

    def queued(self, lock: Lock | RecordRef) -> int:
        """How many callers of this process wait for a lock."""
        return len(seats_of(lock.place))

    def quiet(self, lock: Lock) -> bool:
        """Those who wait for a lock are in line, and have used their wake-ups: nobody is about to ask."""
        homes = locks["default"].engine._queues._queues.get(lock.place, {})
        return all(queue.answered == queue.wakes and queue.arrival for queue in list(homes.values()))

    def start_waiting(self, caller: Caller, lock: Lock, **how: Any) -> Future[Any]:
        """Have a caller wait for a lock, and return when it does."""
        return self._start_queueing(lock, caller, lock.acquire, **how)

    def start_watching(self, caller: Caller, record: RecordRef, *how: Any) -> Future[Any]:
        """Have a caller wait for a change of a record, and return when it does."""
        return self._start_queueing(record, caller, record.wait_for_change, *how)

    def _start_queueing(self, what: Lock | RecordRef, caller: Caller, *call: Any, **how: Any) -> Future[Any]:
        before = seats_of(what.place)
        future = caller.start(*call, **how)
        eventually(lambda: future.done() or not before.issuperset(seats_of(what.place)))
        return future


def seats_of(place: Place) -> set[Seat]:
    """Those of the callers of this process who wait there. Who comes is told by his own: another one may leave meanwhile,
    and they are as many as before."""
    homes = locks["default"].engine._queues._queues.get(place, {})
    return {seat for queue in list(homes.values()) for seat in list(queue.seats)}


def prolonged(caller: Caller, *locks: Lock) -> None:
    """Wait until the store says that the leases of these locks end later than they did."""

    def ends(lock: Lock) -> float:
        now = clock.now()
        holder = caller(lock.holder)
        return now + holder.lease_left if holder else 0.0

    before = [ends(lock) for lock in locks]
    eventually(lambda: all(ends(lock) > first + 0.2 for lock, first in zip(locks, before, strict=True)))


def eventually(condition: Callable[[], Any], within: float = PATIENCE) -> float:
    """Wait until something is so; return how many seconds that took. It runs on the clock that nobody freezes."""
    begin = clock.now()
    pause = threading.Event()
    while not condition():
        if clock.now() - begin > within:
            pytest.fail(f"it isn't so within {within} s", pytrace=True)
        pause.wait(0.001)
    return clock.now() - begin

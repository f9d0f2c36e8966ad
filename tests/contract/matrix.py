"""The matrix of the contract tests: every backend, with the synchronous and the asynchronous API.

A test is written once, in terms of *callers*. A caller may own a lock: it is a thread that calls the methods, or a task
that awaits their ``a`` twins. ``alice(lock.acquire, timeout=1)`` is ``lock.acquire(timeout=1)`` in Alice's thread, or
``await lock.aacquire(timeout=1)`` in Alice's task.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import keyword
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

import pytest

from django_redis_locks import Grant, Latch, Lock, RecordRef, clock, locks
from tests.probes.engine import all_registered, sent_commands, supported_features, waiters

PATIENCE = 30.0
"""Seconds after which a test that waits for something has failed."""

# The backends: the entries of REDIS_LOCKS


def memory(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}


def redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A server behind a bad network, see ``network_faults.py``. Tests that measure time or count commands carry the marker
    ``exact``, with the reason, and use the server directly. The faults are no outage, so ``BACKEND_WAIT`` doesn't end:
    tasks share a connection, and each of its cuts fails the requests of all of them.
    """
    if request.node.get_closest_marker("exact"):
        return {"LOCATION": request.getfixturevalue("redis_url")}
    return {"LOCATION": request.getfixturevalue("bad_network"), "BACKEND_WAIT": PATIENCE}


def cluster(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Three masters, each with a replica: a key that a script doesn't declare, or one in another slot, fails at once."""
    return {"LOCATION": request.getfixturevalue("cluster_location")}


def sentinel(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The master that sentinels name. The commands are those of the row ``redis``; the connections differ, so only the
    suites in ``ON_SENTINEL`` usually run on it, and CI runs all of them once."""
    return {"LOCATION": request.getfixturevalue("sentinel_location")}


def redlock(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A majority of five servers."""
    return {
        "BACKEND": "django_redis_locks.backends.redlock.RedlockBackend",
        "LOCATION": request.getfixturevalue("redlock_location"),
        "OPTIONS": {"socket_timeout": 2.0},
    }


def zookeeper(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One server. ``EXPIRE``, the longest lease there, is that of the longest one in a suite."""
    return {
        "BACKEND": "django_redis_locks.backends.zookeeper.ZooKeeperBackend",
        "EXPIRE": 300,
        "LOCATION": request.getfixturevalue("zookeeper_location"),
    }


ON_SENTINEL = {"test_fence", "test_force_release", "test_hand_over", "test_lock"}
"""They cover requests of threads and tasks, notifications of waiters, renewal, and the facts of a server."""

NOT_ON_ZOOKEEPER = {"test_hand_over"}
"""Its lock is fair, so that it isn't handed over within a process."""

# The faces: callers in threads and callers in tasks


class Caller(Protocol):
    """One thread or one task, with one context: it may own a lock."""

    def start(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call and return its future. A caller makes one call at a time, in order."""

    def as_half_owner(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call with half of an owner's identity: in the thread without the context, or in the context without the
        task."""

    def close(self) -> None: ...

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the method and return its result."""


class Thread:
    """A caller that is a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._executor = ThreadPoolExecutor(1)

    def start(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return self._executor.submit(method, *args, **kwargs)

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.start(method, *args, **kwargs).result(PATIENCE)

    def as_half_owner(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self(contextvars.Context().run, method, *args, **kwargs)

    def close(self) -> None:
        self._executor.shutdown()


class Task:
    """A caller that is a task."""

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
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)

    def start(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        call = twin(method)
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (future, lambda: call(*args, **kwargs)))
        return future

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.start(method, *args, **kwargs).result(PATIENCE)

    def as_half_owner(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def child() -> Any:
            return await self._loop.create_task(twin(method)(*args, **kwargs))

        return self(child)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        self._life.result(PATIENCE)


def twin(method: Callable[..., Any]) -> Callable[..., Any]:
    """``x.acquire`` -> ``x.aacquire``, ``x.__enter__`` -> ``x.__aenter__``, ``x.wait`` -> ``x.await_``; a method without a twin does no I/O."""
    name = getattr(method, "__name__", "")
    other = f"__a{name[2:]}" if name.startswith("__") else f"a{name}"
    other += "_" if keyword.iskeyword(other) else ""
    owner = getattr(method, "__self__", sys.modules.get(getattr(method, "__module__", None) or ""))
    found: Callable[..., Any] = getattr(owner, other, method)
    return found


@contextmanager
def inside(caller: Caller, lock: Lock | Grant) -> Iterator[Grant]:
    """``with lock as grant:`` or ``async with lock as grant:``, in the caller; the body runs in the test."""
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
    pytest.param(sentinel, id="sentinel"),
    pytest.param(redlock, id="redlock"),
    pytest.param(zookeeper, id="zookeeper"),
]
FACES = [pytest.param(Thread, id="sync"), pytest.param(Task, id="async")]

on_memory = pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
"""For checks that precede any request."""
each_mutex = pytest.mark.parametrize(
    "kind", ["lock", pytest.param("fair_lock", marks=pytest.mark.needs("fair"))], indirect=True
)
"""For checks in which the kinds differ in how they work, and not in what they promise."""
threads_only = pytest.mark.parametrize("face", FACES[:1], indirect=True)
tasks_only = pytest.mark.parametrize("face", FACES[1:], indirect=True)

_OWN = object()
_keys = (f"thing:{number}" for number in itertools.count(1))
_prefixes = (f"alone{number}" for number in itertools.count(1))


class Face:
    """The locks of one backend, and callers of one type."""

    def __init__(
        self, entry: dict[str, Any], settings: Any, caller: Any, loop: asyncio.AbstractEventLoop, kind: str = "lock"
    ) -> None:
        self._entry = entry
        self._settings = settings
        self._caller = caller
        self._kind = kind
        self._loop = loop
        self._callers: list[Caller] = []
        self.key = next(_keys)
        """A key of this test only."""
        self.configure()

    @property
    def is_async(self) -> bool:
        return self._caller is Task

    def configure(self, **entry: Any) -> None:
        """Set options of the alias, such as ``METADATA``."""
        self._settings.REDIS_LOCKS = {"default": {**self._entry, **entry}}

    def isolate(self, **entry: Any) -> None:
        """Set options and a unique key prefix: locks, index and fences are separate from those of other tests."""
        self.prefix = next(_prefixes)
        self.configure(KEY_PREFIX=self.prefix, **entry)

    def add_alias(self, alias: str) -> None:
        """Add an alias for the same store, with locks of its own."""
        self._settings.REDIS_LOCKS = {**self._settings.REDIS_LOCKS, alias: {**self._entry, "KEY_PREFIX": alias}}

    def lock(self, key: Any = _OWN, **options: Any) -> Lock:
        make: Callable[..., Lock] = getattr(locks, self._kind)
        return make(self.key if key is _OWN else key, **options)

    def rlock(self, **options: Any) -> Lock:
        return locks.rlock(self.key, **options)

    def record(self) -> RecordRef:
        return locks.record(self.key)

    def caller(self) -> Caller:
        caller: Caller = self._caller(self._loop)
        self._callers.append(caller)
        return caller

    def dismiss(self, caller: Caller) -> None:
        """End a caller's thread or task, and keep no reference to it."""
        caller.close()
        self._callers.remove(caller)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    def commands(self) -> AbstractContextManager[list[str]]:
        """The names of the commands that callers send inside the block, without those of the maintenance thread."""
        return sent_commands()

    def queued(self, lock: Lock | RecordRef | Latch) -> int:
        """How many callers of this process wait for a lock."""
        return len(waiters(lock))

    def wait_until_registered(self, lock: Lock) -> None:
        """Wait until the local waiters are registered in the store, and none of them is about to attempt again. A store that
        wakes no waiters registers none."""
        if "wakes" not in supported_features(self._entry):
            return
        eventually(lambda: all_registered(lock))

    def start_waiting(self, caller: Caller, lock: Any, on: Any = None, **how: Any) -> Future[Any]:
        """Let a caller wait for a lock, and return when it waits: for that lock, or for the part ``on`` of it."""
        return start_queueing(on or lock, caller, lock.acquire, **how)

    def start_watching(self, caller: Caller, record: RecordRef, *how: Any) -> Future[Any]:
        """Let a caller wait for a change of a record, and return when it is registered in the store."""
        waiting = start_queueing(record, caller, record.wait_for_change, *how)
        eventually(lambda: waiting.done() or all_registered(record))
        return waiting


def start_queueing(lock: Any, caller: Caller, *call: Any, **how: Any) -> Future[Any]:
    """Start a call, and return when its caller is queued. The number of waiters doesn't show that: others may leave."""
    before = waiters(lock)
    future = caller.start(*call, **how)
    eventually(lambda: future.done() or not before.issuperset(waiters(lock)))
    return future


def wait_for_renewal(caller: Caller, *locks: Lock) -> None:
    """Wait until the store reports a later end of the leases of these locks."""

    def lease_left(lock: Lock) -> float:
        holder = caller(lock.holder)
        return holder.lease_left if holder else 0.0

    wait_until_prolonged(*(partial(lease_left, lock) for lock in locks))


def wait_until_prolonged(*leases: Callable[[], float]) -> None:
    """Wait until leases, given by functions that return the seconds left, end later than before."""

    def end(lease_left: Callable[[], float]) -> tuple[float, float]:
        """The earliest and the latest possible end: the reply takes some time."""
        asked = clock.now()
        left = lease_left()
        return asked + left, clock.now() + left

    before = [end(lease)[1] + 0.01 for lease in leases]
    eventually(lambda: all(end(lease)[0] > last for lease, last in zip(leases, before, strict=True)))


def eventually(condition: Callable[[], Any], within: float = PATIENCE) -> float:
    """Wait until a condition holds; return the seconds that took, by the clock that freezegun doesn't freeze."""
    begin = clock.now()
    pause = threading.Event()
    while not condition():
        if clock.now() - begin > within:
            pytest.fail(f"the condition doesn't hold within {within} s", pytrace=True)
        pause.wait(0.001)
    return clock.now() - begin

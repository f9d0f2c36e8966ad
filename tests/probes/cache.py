"""What tests may see and replace of the internals of ``django_redis_locks.cache``.

``cache`` and ``using`` are the aliases of the cache and of its locks, as in the public functions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.backends.redis.backend import RedisBackend
from django_redis_locks.cache import Job, values
from django_redis_locks.cache.decorator.function import take_over
from django_redis_locks.cache.loading import background, early, invalidation, transactions
from django_redis_locks.cache.loading import coordinator as coordinator_module
from django_redis_locks.cache.loading.coordinator import CacheCoordinator, coordinator_of
from django_redis_locks.cache.loading.singleflight import InflightLoad
from django_redis_locks.core import clock
from django_redis_locks.core.commands import Command
from django_redis_locks.core.keys import waiters_of


def coordinator(cache: Any, using: str | None = None) -> CacheCoordinator:
    """The coordinator of the loads of a cache in this process."""
    return coordinator_of(cache, using)


def is_same_server(cache: Any, using: str | None = None) -> bool:
    """Whether its leases and values are on the same server."""
    return coordinator_of(cache, using).same_server


def is_down(cache: Any, using: str | None = None) -> bool:
    """Whether its lease server is known to be down."""
    return coordinator_of(cache, using).down


def loads_in_flight(cache: Any, using: str | None = None) -> dict[Any, InflightLoad]:
    """The running loads of this process, by key."""
    return dict(coordinator_of(cache, using).single_flight._inflight)


def reads_in_flight(cache: Any, using: str | None = None) -> dict[Any, InflightLoad]:
    """The running reads of values that other callers of this process share."""
    return dict(coordinator_of(cache, using).reads._inflight)


def followers(cache: Any, using: str | None = None) -> int:
    """How many callers wait for loads of this process, including tasks that lead a load."""
    return sum(len(inflight.events) for inflight in loads_in_flight(cache, using).values())


def readers_waiting(cache: Any, using: str | None = None) -> int:
    """How many callers wait for the reply to another caller's read."""
    return sum(len(read.events) for read in reads_in_flight(cache, using).values())


def waiters_in_store(cache: Any, using: str | None = None) -> int:
    """The number of keys for which callers of this process are registered as waiters in the store."""
    return len(coordinator_of(cache, using).engine._queues)


def wait_until_idle(cache: Any, using: str | None = None) -> None:
    """Wait until background work of the engine is done."""
    coordinator_of(cache, using).engine.wait_until_idle(10)


def write_guard(key: str, *, cache: Any, using: str | None = None) -> AbstractContextManager[Any]:
    """The guard of a write of one key: it invalidates concurrent loads."""
    coordinator = coordinator_of(cache, using)
    return invalidation.write_guard(coordinator, [coordinator.key(key, None)])


def clear_guard(*, cache: Any, using: str | None = None) -> AbstractContextManager[Any]:
    """The guard of a write that affects every key."""
    return invalidation.clear_guard(coordinator_of(cache, using))


def lease_key(key: str) -> str:
    """The key of the lease beside a value on Redis."""
    return coordinator_module.lease_of(key)


def waiters_key(lease: str) -> str:
    """The key of the queue of waiters for a lease."""
    return waiters_of(lease)


def is_envelope(value: object) -> bool:
    """Whether a stored value has a freshness time."""
    return isinstance(value, values.Envelope)


def has_pending_stores() -> bool:
    """Whether a transaction has loaded values that it hasn't stored yet."""
    return transactions.any_pending()


def run_job(job: Job) -> bool:
    """Run a refresh job like a worker."""
    return take_over(job.path, job.token, job.args, job.kwargs)


def seconds_learned(name: str) -> float | None:
    """The average duration of loads of a name, for early refreshes."""
    return early._seconds.get(name)


def disconnect_caches() -> None:
    """Close the connections of this thread's caches on Redis, which Django leaves to the garbage collector."""
    for cache in caches.all(initialized_only=True):
        for pool in getattr(getattr(cache, "_cache", None), "_pools", {}).values():
            pool.disconnect()


def forget_state() -> None:
    """Forget coordinators, the durations of loads, and that a transaction had a value."""
    early._seconds.clear()
    transactions.UncommittedValue.ever_made = False
    coordinator_module.forget_coordinators()


# Replacements


def limit_background_loads(patch: pytest.MonkeyPatch, number: int) -> None:
    """How many loads may run in the background at once."""
    patch.setattr(background._pool, "limit", number)


def limit_timed_loads(patch: pytest.MonkeyPatch, number: int) -> None:
    """How many loads with a ``load_timeout`` may run at once."""
    patch.setattr(background._pool_at_once, "limit", number)


def pass_wall_time(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the wall clock, which defines the freshness of pages, ahead of the real one."""
    real = getattr(clock.wall, "real", clock.wall)

    def wall() -> float:
        return real() + seconds

    wall.real = real  # type: ignore[attr-defined]
    patch.setattr(clock, "wall", wall)


def record_load_commands(patch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return a function that returns the commands of loads sent since its last call, background work excluded."""
    sent: list[str] = []
    plain, asynchronous, many = RedisBackend.call, RedisBackend.acall, RedisBackend.call_many

    def note(*commands: Command[Any]) -> None:
        names = (command.name for command in commands if command.name.startswith("load/"))
        sent.extend(name for name in names if name not in {"load/renew", "load/give_up", "load/unblock"})

    def call(backend: RedisBackend, command: Any) -> Any:
        note(command)
        return plain(backend, command)

    async def acall(backend: RedisBackend, command: Any) -> Any:
        note(command)
        return await asynchronous(backend, command)

    def call_many(backend: RedisBackend, commands: Any, timeout: float) -> Any:
        note(*commands)
        return many(backend, commands, timeout)

    patch.setattr(RedisBackend, "call", call)
    patch.setattr(RedisBackend, "acall", acall)
    patch.setattr(RedisBackend, "call_many", call_many)

    def since() -> list[str]:
        found = list(sent)
        sent.clear()
        return found

    return since


def fail_command(
    patch: pytest.MonkeyPatch, name: str, failure: Exception, cache: Any, using: str | None = None
) -> None:
    """Lose the replies to commands of this name, which are executed."""
    handlers = coordinator_of(cache, using).performer.handlers
    ask = handlers[Command]

    def lose(command: Command[Any]) -> Any:
        reply = ask(command)
        if command.name == name:
            raise failure
        return reply

    patch.setitem(handlers, Command, lose)


def before_command(
    patch: pytest.MonkeyPatch, name: str, act: Callable[[], object], cache: Any, using: str | None = None
) -> None:
    """Call a function each time before a thread sends a command of this name."""
    handlers = coordinator_of(cache, using).performer.handlers
    ask = handlers[Command]

    def first(command: Command[Any]) -> Any:
        if command.name == name:
            act()
        return ask(command)

    patch.setitem(handlers, Command, first)


def hold_before_waiting(patch: pytest.MonkeyPatch, wait: Callable[[], object]) -> None:
    """Let a caller inside a load call ``wait`` before it checks whether waiting for another load could deadlock."""
    depends_on = InflightLoad.depends_on

    def held(inflight: InflightLoad, others: list[InflightLoad]) -> bool:
        wait()
        return depends_on(inflight, others)

    patch.setattr(InflightLoad, "depends_on", held)

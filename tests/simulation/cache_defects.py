"""Triggers of the known defects of loads. A trigger replaces the choices of the seed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError
from django_redis_locks.cache import LoadTimeout
from django_redis_locks.cache.loading.get import get_value
from django_redis_locks.cache.loading.invalidation import invalidate_all, write_guard
from django_redis_locks.cache.loading.request import LoadRequest
from django_redis_locks.cache.options import options as options_of
from django_redis_locks.core.runner import run
from tests.simulation.cache_rules import LOADED, WRITTEN
from tests.simulation.scheduler import current

if TYPE_CHECKING:
    from tests.simulation.cache_world import CacheClient, CacheWorld

KEY = "k"


def _get(client: CacheClient, load: Callable[[], Any], **options: Any) -> Any:
    request = LoadRequest(client.coordinator, KEY, None, load, options_of({"ttl": 60, "jitter": 0, **options}))
    return run(get_value(request), client.coordinator.performer).value


def write_after_silence(world: CacheWorld) -> None:
    """After two seconds without a reply, the next write of a process doesn't invalidate loads, although the server is
    back."""
    here, there = world.clients

    def load() -> Any:
        current().sleep(1.0)
        return LOADED, 1, current().name, 1

    def write_twice() -> None:
        full = here.coordinator.key(KEY, None)
        world.faults.force("request lost", "load/block", here.process)
        for version in (1, 2):
            with write_guard(here.coordinator, [full]):
                world._put(full, KEY, (WRITTEN, version, "", 0))
            if version == 1:
                world.server.store.values.clear()
                world.begin(there, "caller", lambda: _get(there, load), 0.0)
                current().sleep(0.5)
        current().sleep(3.0)
        if world.rules.cached_value(KEY)[0] != WRITTEN:
            world.scheduler.violation("a load that began before a write has replaced what was written")

    world.begin(here, "writer", write_twice, 0.0)


def loader_hangs(world: CacheWorld) -> None:
    """A loader hangs, and another client stores the value."""
    here, _ = world.clients

    def hit() -> None:
        world._put(here.coordinator.key(KEY, None), KEY, "value")
        began = world.scheduler.now
        try:
            _get(here, lambda: "other")
        except LoadTimeout:
            pass
        if world.scheduler.now - began > 1.0:
            world.scheduler.violation(f"a fresh value is waited for {world.scheduler.now - began:.1f} s")

    world.begin(here, "caller that hangs", lambda: _get(here, lambda: current().sleep(60.0)), 0.0)
    world.begin(here, "caller", hit, 0.5)


def _hung(world: CacheWorld, client: CacheClient, seconds: float = 60.0, **options: Any) -> None:
    world.begin(client, "caller that hangs", lambda: _get(client, lambda: current().sleep(seconds), **options), 0.0)


def _prompt(world: CacheWorld, client: CacheClient, latest: float, **options: Any) -> None:
    """A caller that begins after a second must have a value by ``latest``."""

    def get() -> None:
        try:
            _get(client, lambda: "its own", **options)
        except LoadTimeout as failure:
            world.scheduler.violation(f"a slow loader is an error: {failure}")
        if world.scheduler.now > latest:
            world.scheduler.violation(f"{current().name} has waited until {world.scheduler.now:.1f} s")

    world.begin(client, "caller", get, 1.0)


def loader_dies(world: CacheWorld) -> None:
    here, there = world.clients
    _hung(world, here)
    _prompt(world, there, latest=7.2)
    world.scheduler.at(2.0, here.process.kill)


def loader_is_slow(world: CacheWorld) -> None:
    for client in world.clients:
        _prompt(world, client, latest=14.5)
    _hung(world, world.clients[0], seconds=14.0)


def loader_is_overdue(world: CacheWorld) -> None:
    """Callers stop waiting: first those of its process, and after the end of its lease the others."""
    for client in world.clients:
        _prompt(world, client, latest=8.5)
    _hung(world, world.clients[0], max_hold=3)


def lease_of_hung_loader_is_void(world: CacheWorld) -> None:
    """The next renewal detects the invalid claim for the waiters of its process."""
    here, there = world.clients
    _hung(world, here)
    _prompt(world, here, latest=5.0)
    world.scheduler.at(2.0, lambda: world.invalidator(there))


def invalidation_fails(world: CacheWorld) -> None:
    """The server is down for 20 s. A value that is loaded later stays."""
    here, _ = world.clients
    full = here.coordinator.key(KEY, None)
    world._put(full, KEY, (LOADED, 1, "", 0))
    world.server.down_until = 20.0

    def invalidate() -> None:
        with suppress(LockBackendError):
            run(invalidate_all(here.coordinator, [(full, KEY, None)]), here.coordinator.performer)
        current().sleep(40.0)
        if world.rules.cached_value(KEY):
            world.scheduler.violation("a failed invalidation is lost")
        world._put(full, KEY, (LOADED, 2, "", 0))
        current().sleep(100.0)
        if not world.rules.cached_value(KEY):
            world.scheduler.violation("an invalidation is repeated after it succeeded")

    world.begin(here, "invalidator", invalidate, 0.0)


TRIGGERS = {
    "S6": invalidation_fails,
    "S3a": loader_dies,
    "S3b": loader_is_slow,
    "S3d": loader_is_overdue,
    "S3e": lease_of_hung_loader_is_void,
    "S2a": write_after_silence,
    "S3c": loader_hangs,
}

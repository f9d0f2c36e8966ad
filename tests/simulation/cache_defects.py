"""What triggers the known defects of loads, instead of what a seed would choose."""

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
    from tests.simulation.cache_world import CacheWorld, SimulatedRoad

KEY = "k"


def _get(coordinator: SimulatedRoad, load: Callable[[], Any], **options: Any) -> Any:
    call = LoadRequest(coordinator.coordinator, KEY, None, load, options_of({"ttl": 60, "jitter": 0, **options}))
    return run(get_value(call), coordinator.coordinator.performer).value


def write_after_silence(world: CacheWorld) -> None:
    """A process had no answer for two seconds: what it writes next isn't fenced, though the server is there again."""
    here, there = world.coordinators

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
        if world.rules.held(KEY)[0] != WRITTEN:
            world.scheduler.broken("a load that began before a write has replaced what was written")

    world.begin(here, "writer", write_twice, 0.0)


def loader_hangs(world: CacheWorld) -> None:
    """A loader hangs; the value is in the cache meanwhile."""
    here, _ = world.coordinators

    def hit() -> None:
        world._put(here.coordinator.key(KEY, None), KEY, "value")
        began = world.scheduler.now
        try:
            _get(here, lambda: "other")
        except LoadTimeout:
            pass
        if world.scheduler.now - began > 1.0:
            world.scheduler.broken(f"a fresh value is waited for {world.scheduler.now - began:.1f} s")

    world.begin(here, "caller that hangs", lambda: _get(here, lambda: current().sleep(60.0)), 0.0)
    world.begin(here, "caller", hit, 0.5)


def _hung(world: CacheWorld, coordinator: SimulatedRoad, seconds: float = 60.0, **options: Any) -> None:
    world.begin(
        coordinator, "caller that hangs", lambda: _get(coordinator, lambda: current().sleep(seconds), **options), 0.0
    )


def _prompt(world: CacheWorld, coordinator: SimulatedRoad, latest: float, **options: Any) -> None:
    """A caller that begins after a second must have a value by then."""

    def get() -> None:
        try:
            _get(coordinator, lambda: "its own", **options)
        except LoadTimeout as failure:
            world.scheduler.broken(f"a slow loader is an error: {failure}")
        if world.scheduler.now > latest:
            world.scheduler.broken(f"{current().name} has waited until {world.scheduler.now:.1f} s")

    world.begin(coordinator, "caller", get, 1.0)


def loader_dies(world: CacheWorld) -> None:
    here, there = world.coordinators
    _hung(world, here)
    _prompt(world, there, latest=7.2)
    world.scheduler.at(2.0, here.process.kill)


def loader_is_slow(world: CacheWorld) -> None:
    for coordinator in world.coordinators:
        _prompt(world, coordinator, latest=14.5)
    _hung(world, world.coordinators[0], seconds=14.0)


def loader_is_overdue(world: CacheWorld) -> None:
    """Callers give it up: first those who wait in its process, and when its lease is over the others."""
    for coordinator in world.coordinators:
        _prompt(world, coordinator, latest=8.5)
    _hung(world, world.coordinators[0], max_hold=3)


def lease_of_hung_loader_is_void(world: CacheWorld) -> None:
    """Those who wait in its process learn of that by the next renewal."""
    here, there = world.coordinators
    _hung(world, here)
    _prompt(world, here, latest=5.0)
    world.scheduler.at(2.0, lambda: world.invalidator(there))


def invalidation_fails(world: CacheWorld) -> None:
    """The server is down for 20 s. What is loaded later is right, and stays."""
    here, _ = world.coordinators
    full = here.coordinator.key(KEY, None)
    world._put(full, KEY, (LOADED, 1, "", 0))
    world.server.down_until = 20.0

    def invalidate() -> None:
        with suppress(LockBackendError):
            run(invalidate_all(here.coordinator, [(full, KEY, None)]), here.coordinator.performer)
        current().sleep(40.0)
        if world.rules.held(KEY):
            world.scheduler.broken("an invalidation that failed is lost")
        world._put(full, KEY, (LOADED, 2, "", 0))
        current().sleep(100.0)
        if not world.rules.held(KEY):
            world.scheduler.broken("an invalidation is repeated after it was carried out")

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

"""The scenes of the cache world: requests to the cache, and faults. A seed chooses one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.cache_world import CacheWorld

Scene = Callable[["CacheWorld"], None]


def uncontended(world: CacheWorld) -> None:
    """Callers only: one load is enough."""
    for client in world.clients:
        for _ in range(2):
            world.caller(client)


def invalidated(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(here)
    world.caller(there)
    world.invalidator(here)
    world.caller(here)
    world.caller(there)


def caller_after_invalidation(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(there)
    world.invalidator(here)
    world.caller(there)


def invalidated_twice(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(here)
    world.invalidator(here)
    world.caller(there)
    world.invalidator(there)
    world.caller(there)


def written(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(here)
    world.caller(there)
    world.writer(there)
    world.caller(here)
    world.writer(here)


def cleared(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(here)
    world.caller(there)
    world.clearer(here)
    world.caller(there)


def refreshed(world: CacheWorld) -> None:
    here, there = world.clients
    world.put(0)
    world.refresher(here)
    world.caller(there)
    world.invalidator(there)
    world.refresher(there)
    world.caller(here)


def stale(world: CacheWorld) -> None:
    """[S43] A caller with a stale value doesn't wait."""
    world.put(0, seconds=30.0 if world.same_server else -1.0)
    for client in world.clients:
        for _ in range(2):
            world.caller(client, stale=50)


def stale_and_invalidated(world: CacheWorld) -> None:
    here, there = world.clients
    world.put(0, seconds=30.0 if world.same_server else -1.0)
    world.caller(here, stale=50)
    world.caller(there, stale=50, refresh="thread")
    world.invalidator(here)
    world.caller(here, stale=50, refresh="thread")
    world.caller(there, stale=50)


def handed_to_a_worker(world: CacheWorld) -> None:
    """Another process executes a claimed load."""
    here, there = world.clients
    world.put(0, seconds=30.0 if world.same_server else -1.0)

    def submit(job: Any) -> None:
        world.worker(there, job.token, stale=50)

    world.caller(here, stale=50, refresh=submit)
    world.caller(there, stale=50)
    world.invalidator(there)
    world.caller(here, stale=50)


def short_waits(world: CacheWorld) -> None:
    """[S12] Callers wait for less time than a load may take."""
    here, there = world.clients
    world.disturbed += 3
    world.caller(here)
    world.caller(here, wait=0.5)
    world.caller(there, wait=0.5)
    world.invalidator(there)
    world.caller(there, wait=0.0)


def several_keys(world: CacheWorld) -> None:
    """[S17] Several keys in different orders."""
    here, there = world.clients
    world.many(here, "a", "b")
    world.many(there, "b", "a", "c")
    world.invalidator(here, "b")
    world.caller(there, "b")
    world.many(here, "c", "b")


def several_stale_keys(world: CacheWorld) -> None:
    here, there = world.clients
    for key in ("a", "b"):
        world.put(0, seconds=30.0 if world.same_server else -1.0, key=key)
    world.many(here, "a", "b", stale=50)
    world.many(there, "b", "a", stale=50)
    world.invalidator(here, "b")
    world.caller(there, "b", stale=50)
    world.many(there, "a", "b", stale=50)


GROUP = {"groups": ("g",)}


def group_invalidated(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(here, **GROUP)
    world.caller(there, **GROUP)
    world.group_invalidator(here)
    world.caller(there, **GROUP)
    world.many(here, "a", "k", **GROUP)
    world.group_invalidator(there)
    world.caller(here, "a", **GROUP)
    world.refresher(there, **GROUP)


def group_and_key_invalidated(world: CacheWorld) -> None:
    here, there = world.clients
    world.caller(here, stale=50, **GROUP)
    world.caller(there, stale=50, refresh="thread", **GROUP)
    world.invalidator(there)
    world.group_invalidator(here)
    world.caller(there, stale=50, **GROUP)
    world.caller(here, stale=50, **GROUP)


TROUBLE = {"death": 1, "stall": 1, "interrupt": 1}

SCENES: dict[str, tuple[Scene, dict[str, Any]]] = {
    "no faults": (uncontended, {}),
    "failures": (uncontended, {"failures": 2}),
    "invalidated": (invalidated, {}),
    "invalidated, failures": (invalidated, {"failures": 1}),
    "invalidated, a stall": (invalidated, {"chances": {"stall": 1}}),
    "invalidated, a death": (invalidated, {"chances": {"death": 1}}),
    "invalidated, an interruption": (invalidated, {"chances": {"interrupt": 1}}),
    "invalidated, all troubles": (invalidated, {"chances": TROUBLE, "failures": 1}),
    "caller after an invalidation": (caller_after_invalidation, {}),
    "caller after an invalidation, a failure": (caller_after_invalidation, {"failures": 1}),
    "caller after an invalidation, all troubles": (caller_after_invalidation, {"chances": TROUBLE}),
    "twice": (invalidated_twice, {}),
    "twice, all troubles": (invalidated_twice, {"chances": TROUBLE}),
    "written": (written, {}),
    "written, all troubles": (written, {"chances": TROUBLE}),
    "cleared": (cleared, {}),
    "cleared, all troubles": (cleared, {"chances": TROUBLE}),
    "refreshed": (refreshed, {}),
    "refreshed, all troubles": (refreshed, {"chances": TROUBLE}),
    "stale": (stale, {}),
    "stale, failures": (stale, {"failures": 2}),
    "stale and invalidated": (stale_and_invalidated, {}),
    "stale and invalidated, failures": (stale_and_invalidated, {"failures": 2}),
    "stale and invalidated, all troubles": (stale_and_invalidated, {"chances": TROUBLE}),
    "handed over": (handed_to_a_worker, {}),
    "handed over, all troubles": (handed_to_a_worker, {"chances": TROUBLE}),
    "short waits": (short_waits, {}),
    "several": (several_keys, {}),
    "several, failures": (several_keys, {"failures": 1}),
    "several, all troubles": (several_keys, {"chances": TROUBLE}),
    "several stale, failures": (several_stale_keys, {"failures": 2}),
    "several stale, all troubles": (several_stale_keys, {"chances": TROUBLE}),
    "group": (group_invalidated, {}),
    "group, failures": (group_invalidated, {"failures": 1}),
    "group, all troubles": (group_invalidated, {"chances": TROUBLE}),
    "group and key": (group_and_key_invalidated, {}),
    "group and key, all troubles": (group_and_key_invalidated, {"chances": TROUBLE}),
    "invalidated, a lost reply": (invalidated, {"chances": {"reply": 1}}),
    "invalidated, a lost request": (invalidated, {"chances": {"request": 1}}),
    "invalidated, a late request": (invalidated, {"chances": {"late": 1}}),
    "invalidated, an outage": (invalidated, {"chances": {"outage": 1}}),
    "twice, an outage, losses": (invalidated_twice, {"chances": {"outage": 1, "reply": 2}}),
    "invalidated, a copy": (invalidated, {"chances": {"copy": 1}}),
    "written, losses": (written, {"chances": {"reply": 1, "late": 1}}),
    "cleared, losses": (cleared, {"chances": {"reply": 1, "copy": 1}}),
    "refreshed, losses": (refreshed, {"chances": {"reply": 1, "late": 1}}),
    "stale, losses": (stale_and_invalidated, {"chances": {"reply": 1, "request": 1}}),
    "several, losses": (several_keys, {"chances": {"reply": 1, "late": 1}}),
}

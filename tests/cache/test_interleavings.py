"""Callers, writers and those who invalidate, in every order that a seed comes to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory import loads
from django_redis_locks.backends.memory.store import Store
from django_redis_locks.cache import endings, loading
from django_redis_locks.cache.flights import AGAIN, Flights, Landing
from django_redis_locks.cache.values import NOTHING
from django_redis_locks.cache.worlds import Fetch
from tests.cache.actors import ALIAS
from tests.cache.stepping import World

FULL = os.environ.get("EXPLORE") == "full"
SEEDS = 3000 if FULL else 60

ENOUGH = 3000
"""Seeds among which a rule that is switched off must show."""

Scene = Callable[[World], None]


def calm(world: World) -> None:
    """Nothing but callers: one load is enough."""
    for process in world.processes:
        for _ in range(2):
            world.caller(process)


def invalidated(world: World) -> None:
    here, there = world.processes
    world.caller(here)
    world.caller(there)
    world.invalidator(here)
    world.caller(here)
    world.caller(there)


def followed(world: World) -> None:
    here, there = world.processes
    world.caller(there)
    world.invalidator(here)
    world.caller(there)


def twice(world: World) -> None:
    here, there = world.processes
    world.caller(here)
    world.invalidator(here)
    world.caller(there)
    world.invalidator(there)
    world.caller(there)


def written(world: World) -> None:
    here, there = world.processes
    world.caller(here)
    world.caller(there)
    world.writer(there)
    world.caller(here)
    world.writer(here)


def cleared(world: World) -> None:
    here, there = world.processes
    world.caller(here)
    world.caller(there)
    world.clearer(here)
    world.caller(there)


def refreshed(world: World) -> None:
    here, there = world.processes
    world.put(0)
    world.refresher(here)
    world.caller(there)
    world.invalidator(there)
    world.refresher(there)
    world.caller(here)


def stale(world: World) -> None:
    """[S43] Whoever has a stale value doesn't wait."""
    world.put(0, lives=30.0 if world.fused else -1.0)
    for process in world.processes:
        for _ in range(2):
            world.caller(process, stale=50)


def stale_and_invalidated(world: World) -> None:
    here, there = world.processes
    world.put(0, lives=30.0 if world.fused else -1.0)
    world.caller(here, stale=50)
    world.caller(there, stale=50, refresh="thread")
    world.invalidator(here)
    world.caller(here, stale=50, refresh="thread")
    world.caller(there, stale=50)


def handed_over(world: World) -> None:
    """Another process carries out what one has claimed."""
    here, there = world.processes
    world.put(0, lives=30.0 if world.fused else -1.0)

    def submit(job: Any) -> None:
        world.worker(there, job.token, stale=50)

    world.caller(here, stale=50, refresh=submit)
    world.caller(there, stale=50)
    world.invalidator(there)
    world.caller(here, stale=50)


def impatient(world: World) -> None:
    """[S12] Their wait is shorter than a load may take."""
    here, there = world.processes
    world.disturbed += 3
    world.caller(here)
    world.caller(here, wait=0.5)
    world.caller(there, wait=0.5)
    world.invalidator(there)
    world.caller(there, wait=0.0)


def several(world: World) -> None:
    """[S17] Keys in different orders."""
    here, there = world.processes
    world.many(here, "a", "b")
    world.many(there, "b", "a", "c")
    world.invalidator(here, "b")
    world.caller(there, "b")
    world.many(here, "c", "b")


def several_stale(world: World) -> None:
    here, there = world.processes
    for key in ("a", "b"):
        world.put(0, lives=30.0 if world.fused else -1.0, key=key)
    world.many(here, "a", "b", stale=50)
    world.many(there, "b", "a", stale=50)
    world.invalidator(here, "b")
    world.caller(there, "b", stale=50)
    world.many(there, "a", "b", stale=50)


TROUBLE = {"death": 1, "stall": 1, "strike": 1}

SCENES: dict[str, tuple[Scene, dict[str, Any]]] = {
    "calm": (calm, {}),
    "failures": (calm, {"failures": 2}),
    "invalidated": (invalidated, {}),
    "invalidated, failures": (invalidated, {"failures": 1}),
    "invalidated, a stall": (invalidated, {"chances": {"stall": 1}}),
    "invalidated, an end": (invalidated, {"chances": {"death": 1}}),
    "invalidated, a strike": (invalidated, {"chances": {"strike": 1}}),
    "invalidated, all troubles": (invalidated, {"chances": TROUBLE, "failures": 1}),
    "followed": (followed, {}),
    "followed, a failure": (followed, {"failures": 1}),
    "followed, all troubles": (followed, {"chances": TROUBLE}),
    "twice": (twice, {}),
    "twice, all troubles": (twice, {"chances": TROUBLE}),
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
    "handed over": (handed_over, {}),
    "handed over, all troubles": (handed_over, {"chances": TROUBLE}),
    "impatient": (impatient, {}),
    "several": (several, {}),
    "several, failures": (several, {"failures": 1}),
    "several, all troubles": (several, {"chances": TROUBLE}),
    "several stale, failures": (several_stale, {"failures": 2}),
    "several stale, all troubles": (several_stale, {"chances": TROUBLE}),
    "invalidated, a lost reply": (invalidated, {"chances": {"reply": 1}}),
    "invalidated, a lost request": (invalidated, {"chances": {"request": 1}}),
    "invalidated, a late request": (invalidated, {"chances": {"late": 1}}),
    "invalidated, a copy": (invalidated, {"chances": {"copy": 1}}),
    "written, losses": (written, {"chances": {"reply": 1, "late": 1}}),
    "cleared, losses": (cleared, {"chances": {"reply": 1, "copy": 1}}),
    "refreshed, losses": (refreshed, {"chances": {"reply": 1, "late": 1}}),
    "stale, losses": (stale_and_invalidated, {"chances": {"reply": 1, "request": 1}}),
    "several, losses": (several, {"chances": {"reply": 1, "late": 1}}),
}

ROADS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "beside"])


@pytest.fixture(autouse=True)
def known(settings: Any) -> None:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        ALIAS: {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    }


def explore(seed: int, scene: Scene, *, fused: bool, **how: Any) -> World:
    with World(seed, fused=fused, **how).alive() as world:
        scene(world)
        while world.go_on():
            pass
        world.verdict()
    return world


@ROADS
@pytest.mark.parametrize("name", SCENES)
def test_whatever_the_order(name: str, fused: bool) -> None:
    scene, how = SCENES[name]
    for seed in range(SEEDS):
        world = explore(seed, scene, fused=fused, **how)
        assert not world.broken, "\n".join([f"{name}, seed {seed}", *world.story, *world.broken])


# The tool sees what it is made for: each rule, switched off, is a story that it tells.


def no_token(patch: pytest.MonkeyPatch) -> None:
    """[S1] Whoever has a value may store it."""

    def end(store: Any, keys: tuple[str, ...], token: str, keep: int, value: Any) -> int:
        store.records.pop(keys[0], None)
        if len(keys) > 4 and keep:
            store.values[keys[4]] = value, None
        store.wake_all(keys[0], keys[1])
        return 1

    patch.setitem(memory._steps, "load/store", end)


def no_generation(patch: pytest.MonkeyPatch) -> None:
    """[S31] A load of before the cache was cleared is in force."""
    patch.setattr(loads, "_loading", lambda store, key, generation: store.find(key))


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """[S1] An invalidation only takes the value."""

    def fence(store: Any, keys: tuple[str, ...], *args: int) -> int:
        lease = store.records.get(keys[0])
        found = loads.fence(store, keys, *args)
        if lease is not None:
            store.records[keys[0]] = lease
        return found

    patch.setitem(memory._steps, "load/fence", fence)


def no_block(patch: pytest.MonkeyPatch) -> None:
    """[S4] Who writes lets those load who do."""
    patch.setitem(memory._steps, "load/block", lambda store, keys, token, lease: 1)


def shared_by_all(patch: pytest.MonkeyPatch) -> None:
    """[S3] Those who joined a load that is void get what it brings."""
    patch.setattr(Landing, "alone", property(lambda self: False, lambda self, alone: None), raising=False)


def no_second_look(patch: pytest.MonkeyPatch) -> None:
    """In two steps: what was stored between the look and the claim isn't seen."""

    def looked_again(call: Any, claim: Any) -> Any:
        return NOTHING
        yield

    patch.setattr(loading, "looked_again", looked_again)


def no_removal(patch: pytest.MonkeyPatch) -> None:
    """In two steps: what was stored although its claim was void stays."""
    patch.setattr(endings, "Remove", Fetch)


def nobody_is_woken(patch: pytest.MonkeyPatch) -> None:
    """[S24] Those who wait find out by themselves."""
    patch.setattr(Store, "wake_all", lambda self, lock, waiters: None)


def flight_kept(patch: pytest.MonkeyPatch) -> None:
    """[S21] A flight stays when who leads it is interrupted."""
    patch.setattr(
        Flights,
        "land",
        lambda self, key, flight, landing, land=Flights.land: landing is AGAIN or land(self, key, flight, landing),
    )


def never_too_late(patch: pytest.MonkeyPatch) -> None:
    """[S3] Who joins while the answer that decides is on its way is told what it decides."""
    patch.setattr(Landing, "is_for", lambda self, begin: not self.alone)


def not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """[S3] Who comes after an invalidation of this very process joins what began before."""
    patch.setattr(Flights, "forget", lambda self, key: None)
    never_too_late(patch)


Mutation = Callable[[pytest.MonkeyPatch], None]

MUTATIONS: list[tuple[Mutation, str, str, bool]] = [
    (no_token, "the cache holds", "invalidated", True),
    (no_token, "the cache holds", "followed", False),
    (no_generation, "the cache holds", "cleared", False),
    (no_fence, "the cache holds", "invalidated", True),
    (no_fence, "the cache holds", "invalidated", False),
    (no_block, "the cache holds", "written", True),
    (shared_by_all, "was told", "followed", True),
    (never_too_late, "was told", "followed", True),
    (not_forgotten, "was told", "followed", True),
    (no_second_look, "it was loaded", "calm", False),
    (no_removal, "the cache holds", "followed", False),
    (nobody_is_woken, "sleeps", "calm", True),
    (flight_kept, "a flight is left", "refreshed, all troubles", True),
]


@pytest.mark.parametrize(
    ("mutation", "why", "name", "fused"),
    MUTATIONS,
    ids=[f"{mutation.__name__}-{'fused' if fused else 'beside'}" for mutation, _, _, fused in MUTATIONS],
)
def test_a_rule_that_is_switched_off_is_found(
    mutation: Mutation, why: str, name: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the silence of the other tests would mean nothing."""
    mutation(monkeypatch)
    scene, how = SCENES[name]
    stories = (explore(seed, scene, fused=fused, **how).broken for seed in range(ENOUGH))
    assert any(why in problem for broken in stories for problem in broken)

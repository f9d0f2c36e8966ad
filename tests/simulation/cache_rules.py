"""The rules that loads of a cache keep under all faults."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_redis_locks.cache import values

if TYPE_CHECKING:
    from tests.simulation.cache_world import CacheClient, CacheWorld
    from tests.simulation.scheduler import Actor

LOADED, WRITTEN = "loaded", "written"

KEYS = ("a", "b", "c", "k")

PROMPT = 1.0
"""Seconds after which a caller has a value without faults: loads take some hundredths of a second."""


@dataclass
class CacheCall:
    """One call of the cache.

    Attributes:
        min_version: of each key the oldest version that the cache might hold when it began.
        min_version_of_group: the oldest version of any key that its group allowed then.
    """

    actor: Actor
    min_version: dict[str, int]
    min_version_of_group: int
    began: float
    source: str = ""
    values: dict[str, Any] = field(default_factory=dict)


class CacheRules:
    """Checks the rules in one cache world.

    Attributes:
        floor: of each key the oldest version that the cache may hold.
        owed: failed invalidations, which living processes have to repeat by the end.
        disturbed: the number of events after each of which one more load is allowed.
        seen: values that were in the cache: on separate servers, a value may be read that is about to be deleted.
    """

    def __init__(self, world: CacheWorld) -> None:
        self.world = world
        self.min_version: Counter[str] = Counter()
        self.min_version_of_group = 0
        self.loads: Counter[str] = Counter()
        self.failed_invalidations: list[tuple[CacheClient, int, str]] = []
        self.disturbed = 0
        self.seen: set[Any] = set()
        self.interrupted_actors: set[str] = set()
        self.cleared = False
        world.server.observers.append(lambda command, reply: self.check_cache())

    def _violation(self, what: str) -> None:
        self.world.scheduler.violation(what)

    @property
    def _lossy(self) -> bool:
        return bool(self.world.chances.keys() & {"reply", "request", "late", "copy", "outage"})

    def invalidated_up_to(self, version: int, key: str) -> None:
        self.world.scheduler.log("nothing older than %s may be in the cache", version)
        self.min_version[key] = max(self.min_version[key], version)
        self.check_cache()

    def group_invalidated_up_to(self, version: int) -> None:
        self.world.scheduler.log("nothing older than %s may be served to callers with the group", version)
        self.min_version_of_group = max(self.min_version_of_group, version)

    def cached_value(self, key: str) -> Any:
        """Return what the cache holds."""
        world = self.world
        if not world.same_server:
            return values.unwrap(world.cache.get(key))
        found = world.server.store.values.get(world.clients[0].coordinator.key(key, None))
        if found is None or (found[1] is not None and found[1] <= world.scheduler.now):
            return None
        return values.unwrap(pickle.loads(found[0]))

    def check_cache(self) -> None:
        """The cache never holds a value older than the last invalidation."""
        if not self.world.same_server:
            self.seen.update(self.cached_value(key) for key in KEYS)
        for key, min_version in self.min_version.items():
            found = self.cached_value(key)
            if found is None or found[0] != LOADED or found[1] >= min_version:
                continue
            if self.world.same_server or not (self._excused(found) or self._runs(found[2])):
                self._violation(f"the cache holds {found}, and nothing older than {min_version} may be there")

    def _runs(self, name: str) -> bool:
        """On separate servers an invalid value stays in the cache until its load has ended."""
        return any(actor.name == name and not actor.over for actor in self.world.actors)

    def _excused(self, found: Any) -> bool:
        """A caller that died or was interrupted couldn't delete its value."""
        dead = any(actor.name == found[2] and actor.process.dead for actor in self.world.actors)
        return dead or found[2] in self.interrupted_actors

    def check_result(self, call: CacheCall) -> None:
        world = self.world
        for key, min_version in call.min_version.items():
            kind, version, by, _ = call.values[key]
            if kind == LOADED and version < min_version and not (self._lossy or call.values[key] in self.seen):
                self._violation(f"{call.actor.name} is given {version} of {key} by {by}, and began after {min_version}")
            if kind == LOADED and version < call.min_version_of_group:
                self._violation(
                    f"{call.actor.name} is given {version} of {key} by {by}, whose group was invalidated up to "
                    f"{call.min_version_of_group}"
                )
        took = world.scheduler.now - call.began
        if took > PROMPT and not (world.chances or self.cleared):
            self._violation(f"{call.actor.name} waits for {took:.1f} s, and nothing goes wrong")

    def _apply_failed_invalidations(self) -> None:
        for client, version, key in self.failed_invalidations:
            if not client.process.dead:
                self.invalidated_up_to(version, key)

    def check_end(self) -> None:
        if self.world.scheduler.problems:
            return
        self._apply_failed_invalidations()
        self.check_cache()
        for actor in self.world.actors:
            if not actor.over and not actor.process.dead:
                self._violation(f"{actor.name} never ends")
        for client in self.world.clients:
            if not client.process.dead:
                if client.coordinator.single_flight._inflight:
                    self._violation(f"a load is left in {client.process.name}")
                if len(client.process.engine._queues):
                    self._violation(f"a waiter is left in {client.process.name}")
        if not self.world.chances:
            most = 1 + self.disturbed
            if any(number > most for number in self.loads.values()):
                self._violation(f"it was loaded {dict(self.loads)} times; {most} would do")

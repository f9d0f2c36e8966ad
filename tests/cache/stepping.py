"""Loads in one greenlet per caller, of which one at a time does one step: a store command, its answer, a look at the cache
or at the database.

Code of the product runs as it is, on the memory backend's commands; the clock, the janitor, the sleep of waiters and the
cache beside the store are this world's own. Who goes next, who dies, which answer is lost and what comes late is decided by
a seed, so that a run can be repeated.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any
from unittest import mock

from django_redis_locks import LockBackendError, clock
from django_redis_locks import engine as engines
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory import loads as memory_loads
from django_redis_locks.backends.memory import store as memory_store
from django_redis_locks.cache import LoadFailed, LoadTimeout, endings, flights, values
from django_redis_locks.cache.calls import Call
from django_redis_locks.cache.fences import everything, invalidating, writing
from django_redis_locks.cache.loads import getting, refreshing, taking_over
from django_redis_locks.cache.many import getting_many
from django_redis_locks.cache.options import options as options_of
from django_redis_locks.core import queues
from django_redis_locks.core.effects import Command
from django_redis_locks.core.runner import run
from tests.cache.actors import Actor, Process, StepGate, Struck, me

KEY = "k"
LATEST = 500.0
"""Seconds of this world's clock after which nothing should be left to do."""

LOADED, WRITTEN = "loaded", "written"


class NoRates(Exception):
    """What a loader raises."""


@dataclass
class Told:
    """What a caller was told."""

    who: Actor
    began: dict[str, int]
    """Of each key the oldest version that the cache might hold when he began."""
    stale: bool
    source: str
    values: dict[str, Any]
    loaded: int
    """How often he ran the loader."""


class World:
    """Everything, and the choice of what comes next. ``chances``: of each kind of trouble, how often at most."""

    def __init__(self, seed: int, *, fused: bool, chances: dict[str, int] | None = None, failures: int = 0) -> None:
        self.random = Random(seed)
        self.sticky = self.random.choice([0.0, 0.6, 0.9])
        """How likely one goes on who has just made a step: who stands still while another one does much is rare otherwise."""
        self.last: Actor | None = None
        self.fused = fused
        self.chances = dict(chances or {})
        self.troubled = bool(self.chances)
        self.lossy = bool(self.chances.keys() & {"reply", "request", "late", "copy"})
        self.failures = failures
        self.now = 1000.0
        self.location = f"stepping {id(self)}"
        self.store = memory._stores.setdefault(self.location, memory_store.Store())
        self.cache: dict[str, Any] = {}
        self.unfenced: set[str] = set()
        """Values that were stored while the leases couldn't be asked."""
        self.database = 1
        self.floor: Counter[str] = Counter()
        """Of each key the oldest version that the cache may hold."""
        self.actors: list[Actor] = []
        self.late: list[Command[Any]] = []
        self.told: list[Told] = []
        self.broken: list[str] = []
        self.story: list[str] = []
        self.loads: Counter[str] = Counter()
        self.loading: Counter[str] = Counter()
        self.disturbed = 0
        """How often anything happened after which a value must be loaded once more."""
        self.steps = 0
        self.seen: set[Any] = set()
        """Values that were in the cache once. On the road beside, one that is about to be taken out again may be read."""
        self.cleared = False
        self.processes: list[Process] = []

    @contextmanager
    def alive(self, processes: int = 2) -> Iterator[World]:
        """The product's doors to the outside lead into this world."""
        with (
            mock.patch.multiple(clock, now=self._tick, wall=self._tick),
            mock.patch.multiple(memory_store, monotonic=lambda: self.now, timestamp=lambda: self.now),
            mock.patch.multiple(memory, monotonic=lambda: self.now),
            mock.patch.multiple(memory_loads, monotonic=lambda: self.now),
            mock.patch.multiple(values, timestamp=lambda: self.now),
            mock.patch.object(queues, "ThreadEvent", StepGate),
            mock.patch.object(flights, "ThreadEvent", StepGate),
            mock.patch.object(queues, "random", self.random.random),
            mock.patch.object(endings, "random", return_value=0.0),
        ):
            self.processes = [Process(self, f"p{number}") for number in range(1, processes + 1)]
            try:
                yield self
            finally:
                for process in self.processes:
                    process.dead = True
                for actor in self.actors:
                    while not actor.over:
                        actor.go()
                    actor.green = None  # type: ignore[assignment]
                memory._stores.pop(self.location, None)
                for process in self.processes:
                    engines._queues.pop(process.backend.identity, None)
                    flights._all.remove(process.road.flights)
                    flights._all.remove(process.road.looks)

    def _tick(self) -> float:
        self.now += 1e-6
        return self.now

    # What actors do

    def begin(self, process: Process, name: str, act: Callable[[], Any]) -> Actor:
        def work() -> None:
            me().pause("begins")
            act()

        actor = Actor(f"{name} {len(self.actors) + 1} of {process.name}", process, work)
        self.actors.append(actor)
        actor.go()
        return actor

    def _call(self, process: Process, key: str, **options: Any) -> Call:
        return Call(process.road, key, None, self.loader(key), options_of({"ttl": 60, "jitter": 0, **options}))

    def caller(self, process: Process, key: str = KEY, **options: Any) -> None:
        self._ask(process, "caller", [key], bool(options.get("stale")), lambda: self._got(process, key, options))

    def _got(self, process: Process, key: str, options: dict[str, Any]) -> dict[str, Any]:
        return {key: run(getting(self._call(process, key, **options)), process.road.world)}

    def many(self, process: Process, *keys: str, **options: Any) -> None:
        def get() -> dict[str, Any]:
            loaders = {key: self.loader(key) for key in keys}
            load = lambda asked: {key: loaders[key]() for key in asked}  # noqa: E731
            program = getting_many(process.road, keys, None, load, options_of({"ttl": 60, "jitter": 0, **options}))
            return run(program, process.road.world)

        self._ask(process, "caller of many", list(keys), False, get)

    def refresher(self, process: Process, key: str = KEY, **options: Any) -> None:
        def get() -> dict[str, Any]:
            return {key: run(refreshing(self._call(process, key, **options)), process.road.world)}

        self.disturbed += 1
        self._ask(process, "refresher", [key], False, get)

    def _ask(
        self, process: Process, name: str, keys: list[str], stale: bool, get: Callable[[], dict[str, Any]]
    ) -> None:
        def ask() -> None:
            began = {key: self.floor[key] for key in keys}
            try:
                results = get()
            except (NoRates, LoadFailed, LoadTimeout) as failure:
                self.say(f"  {me().name} is told {failure!r}")
                return
            found = {key: result.value for key, result in results.items()}
            source = ",".join(result.source for result in results.values())
            self.say(f"  {me().name} is told {found} ({source})")
            self.told.append(Told(me(), began, stale, source, found, self.loading[me().name]))

        self.begin(process, name, ask)

    def loader(self, key: str) -> Callable[[], Any]:
        def load() -> Any:
            actor = me()
            self.loads[key] += 1
            self.loading[actor.name] += 1
            actor.pause(f"loads {key}")
            version = self.database
            actor.pause(f"has read {version}")
            if self.failures and self.random.random() < 0.4:
                self.failures -= 1
                self.disturbed += 1
                raise NoRates(str(version))
            return LOADED, version, actor.name, self.loads[key]

        return load

    def invalidator(self, process: Process, key: str = KEY, **how: int) -> None:
        def work() -> None:
            before = self._change()
            road = process.road
            try:
                run(invalidating(road, [(road.key(key, None), key, None)], **how), road.world)
            except LockBackendError:
                self.say("  it isn't known whether it was invalidated")
                return
            if not how.get("keep"):
                self._covered(before, key)

        self.disturbed += 1 if self.fused else 2
        self.begin(process, "invalidator", work)

    def writer(self, process: Process, key: str = KEY) -> None:
        def work() -> None:
            before = self._change()
            road = process.road
            full = road.key(key, None)
            with writing(road, [full]):
                me().pause("writes")
                self._put(full, key, (WRITTEN, before, me().name, 0))
                me().pause("has written")
            if not road.down:
                self._covered(before, key)

        self.disturbed += 1
        self.begin(process, "writer", work)

    def clearer(self, process: Process, *keys: str) -> None:
        def work() -> None:
            before = self._change()
            with everything(process.road):
                me().pause("clears")
                self.cache.clear()
                if self.fused:  # FLUSHDB takes all there is
                    for part in (self.store.values, self.store.records, self.store.fences, self.store.lines):
                        part.clear()
                self.look()
                me().pause("has cleared")
            if not process.road.down:
                for key in keys or (KEY,):
                    self._covered(before, key)

        self.disturbed += 3
        self.cleared = True
        self.begin(process, "clearer", work)

    def worker(self, process: Process, token: str, key: str = KEY, **options: Any) -> None:
        """Carries out a load that was handed over."""
        call = self._call(process, key, **options)
        self.begin(process, "worker", lambda: run(taking_over(call, token), process.road.world))

    def _change(self) -> int:
        self.database += 1
        self.say(f"  the database has {self.database}")
        before = self.database
        me().pause("has changed the database")
        return before

    def _covered(self, version: int, key: str) -> None:
        self.say(f"  nothing older than {version} may be in the cache")
        self.floor[key] = max(self.floor[key], version)
        self.look()

    def put(self, version: int, lives: float | None = None, key: str = KEY) -> None:
        """Have a value in the cache from the beginning."""
        value = (LOADED, version, "somebody", 0)
        if self.fused:
            full = self.processes[0].road.key(key, None)
            self.store.values[full] = pickle.dumps(value), None if lives is None else self.now + lives
        else:
            self.cache[key] = value if lives is None else values.Kept(value, self.now + lives)

    def _put(self, full: str, key: str, value: Any) -> None:
        if self.fused:
            self.store.values[full] = pickle.dumps(value), None
        else:
            self.cache[key] = value

    # What must hold

    def held(self, key: str = KEY) -> Any:
        """What the cache holds."""
        if not self.fused:
            return values.unwrap(self.cache.get(key))
        _, data = self.store.value(self.processes[0].road.key(key, None))
        return None if data is None else pickle.loads(data)

    def look(self) -> None:
        """What the cache holds is never older than what was invalidated."""
        for key in () if self.fused else ("a", "b", "c", KEY):
            self.seen.add(self.held(key))
        for key, floor in self.floor.items():
            found = self.held(key)
            if found is None or found[0] != LOADED or found[1] >= floor:
                continue
            if self.fused or not (self._excused(found) or self._runs(found[2])):
                self._break(f"the cache holds {found}, and nothing older than {floor} may be there")

    def _runs(self, name: str) -> bool:
        """In two steps there is a window, which is closed when the load has ended."""
        return any(actor.name == name and not actor.over for actor in self.actors)

    def _excused(self, found: Any) -> bool:
        """Who died or was interrupted in that window can't close it; nor is there a fence while the leases can't be asked."""
        gone = any(actor.name == found[2] and (actor.process.dead or actor.struck) for actor in self.actors)
        return gone or str(found) in self.unfenced

    def _break(self, what: str) -> None:
        if what not in self.broken:
            self.broken.append(what)
            self.say(f"! {what}")

    def verdict(self) -> list[str]:
        self.look()
        if any(not actor.over for actor in self.actors):
            self._break(f"it never ends: {[(actor.name, actor.where) for actor in self.actors if not actor.over]}")
        for told in self.told:
            self._judge(told)
        self._nothing_is_left()
        if not self.troubled:
            left = [key for key in list(self.store.records) if self._in_force(key)]
            if left:
                self._break(f"leases are left: {left}")
            most = 1 + self.disturbed
            if any(number > most for number in self.loads.values()):
                self._break(f"it was loaded {dict(self.loads)} times; {most} would do")
        return self.broken

    def _nothing_is_left(self) -> None:
        for process in self.processes:
            if process.dead:
                continue
            if process.road.flights._flying:
                self._break(f"a flight is left in {process.name}")
            if len(process.engine._queues):
                self._break(f"a waiter is left in {process.name}")
            mine = [a for line in self.store.lines.values() for a in line if f"{process.name} " in a]
            if mine and not self.chances.keys() & {"late", "copy"}:  # who registered so is forgotten after a while
                self._break(f"in line are {mine}")

    def _judge(self, told: Told) -> None:
        for key, floor in told.began.items():
            kind, version, by, _ = told.values[key]
            if kind == LOADED and version < floor and not (self.lossy or told.values[key] in self.seen):
                self._break(f"{told.who.name} was told {version} of {key} by {by}, and began after {floor}")
        if told.stale and told.source == "stale" and told.who.slept and not (told.loaded or self.disturbed):
            self._break(f"{told.who.name} has waited, and a stale value was there")

    def _in_force(self, key: str) -> bool:
        lease = self.store.find(key)
        if lease is None or lease.token in ("!", ""):
            return False
        generations = {self.store.fences.get(name, 0) for p in self.processes for name in p.road.generations()}
        return lease.fence in generations

    # What comes next

    def go_on(self) -> bool:
        """One step. Whether there was one to do."""
        self.steps += 1
        if self.steps > 3000:
            return False
        living = [actor for actor in self.actors if not actor.over]
        ready = [actor for actor in living if actor.ready]
        janitors = [process.janitor for process in self.processes if process.janitor.jobs]
        choices: list[Callable[[], None]] = [lambda actor=actor: self._step(actor) for actor in ready]
        choices += [janitor.work for janitor in janitors]
        choices += [self._arrive] if self.late and self.random.random() < 0.2 else []
        if choices:
            if ready and self._happens("death"):
                self._kill(self.random.choice(ready).process)
            elif (mortal := [actor for actor in ready if actor.where != "begins"]) and self._happens("strike"):
                self._strike(self.random.choice(mortal))
            elif self._happens("stall"):
                self.now += 40.0
                self.disturbed += 1
                self.say("  all stand still for 40 s, and nobody renews")
            elif self.last in ready and self.random.random() < self.sticky:
                self._step(self.last)
            else:
                self.random.choice(choices)()
            return True
        if self.late:
            self._arrive()
            return True
        moments = [actor.until for actor in living]
        if not moments or min(moments) == inf:
            return False
        if not (
            self.lossy or self.cleared or self.chances.keys() & {"death", "stall"}
        ):  # nobody knows who waits in a cache that is cleared: they look themselves
            self._nobody_sleeps()
        self._later(max(self.now + 0.001, min(moments)))
        return self.now < 1000.0 + LATEST

    def _nobody_sleeps(self) -> None:
        """While nobody loads it."""
        for process in self.processes:
            for place in process.engine._queues._queues:
                if not process.dead and not self.loading_now(place.lock):
                    self._break(f"somebody of {process.name} sleeps, and nobody loads {place.lock}")

    def loading_now(self, lease: str) -> bool:
        return self._in_force(lease)

    def _step(self, actor: Actor) -> None:
        self.say(f"  {actor.name}: {actor.where}")
        self.last = actor
        actor.go()

    def _arrive(self) -> None:
        command = self.late.pop(self.random.randrange(len(self.late)))
        self.say(f"  late comes {command.name}")
        self.processes[0].backend.call(command)
        self.look()

    def _kill(self, process: Process) -> None:
        self.say(f"  {process.name} dies")
        self.disturbed += 1
        process.die()
        for actor in [actor for actor in self.actors if actor.process is process]:
            while not actor.over:
                actor.go()
        fresh = Process(self, f"{process.name}'")
        self.processes.append(fresh)

    def _strike(self, actor: Actor) -> None:
        self.say(f"  {actor.name} is struck at: {actor.where}")
        self.disturbed += 1
        actor.strike = actor.struck = True
        actor.go()

    def _later(self, moment: float) -> None:
        while self.now < moment:
            self.now = min(moment, self.now + 5.0)
            for process in self.processes:
                process.janitor.renew()
        self.say(f"  it is {self.now:.1f}")

    def _happens(self, kind: str) -> bool:
        if not self.chances.get(kind) or self.random.random() > 0.06:
            return False
        self.chances[kind] -= 1
        return True

    def fault(self, command: Command[Any]) -> str:
        """Whether a command goes wrong: its ``"request"`` is lost, or comes late, or its ``"reply"`` is."""
        for kind in ("request", "reply", "late", "copy"):
            if self.chances.get(kind) and self.random.random() < 0.1:
                self.chances[kind] -= 1
                self.disturbed += 2
                self.say(f"    {kind} of {command.name} {'comes twice' if kind == 'copy' else 'is lost'}")
                if kind in ("late", "copy"):
                    self.late.append(command)
                return {"late": "request", "copy": ""}.get(kind, kind)
        return ""

    def say(self, what: str) -> None:
        self.story.append(what)


__all__ = ["KEY", "NoRates", "Struck", "World"]

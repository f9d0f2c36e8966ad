"""The cache world: callers, writers and invalidators in a few processes, with faults that the seed chooses.

The programs of loads are those of the package, on the simulated server. Values that aren't on that server are in a dict
of this world.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.cache import LoadFailed, LoadTimeout, values
from django_redis_locks.cache.loading import store as store_module
from django_redis_locks.cache.loading.batch import get_values
from django_redis_locks.cache.loading.coordinator import CacheCoordinator
from django_redis_locks.cache.loading.effects import Add, Delete, Fetch, FetchMany, LeadInBackground, Store
from django_redis_locks.cache.loading.get import get_value, reload_value
from django_redis_locks.cache.loading.invalidation import clear_guard, invalidate_all, write_guard
from django_redis_locks.cache.loading.refresh_job import carry_out
from django_redis_locks.cache.loading.request import LoadRequest
from django_redis_locks.cache.options import options as options_of
from django_redis_locks.cache.results import MISSING
from django_redis_locks.cache.values import Pickled
from django_redis_locks.conf import AliasSettings
from django_redis_locks.core.keys import KeyLayout
from django_redis_locks.core.runner import run
from tests.simulation.cache_defects import TRIGGERS
from tests.simulation.cache_rules import LOADED, WRITTEN, CacheCall, CacheRules
from tests.simulation.cache_scenes import SCENES
from tests.simulation.faults import Faults
from tests.simulation.network import LOCATION, Server
from tests.simulation.process import Process
from tests.simulation.scheduler import Actor, Interrupted, Scheduler, current

if TYPE_CHECKING:
    from tests.simulation.installation import Installation

KEY = "k"
LATEST = 500.0
ALIAS = "default"


class LoaderFailed(Exception):
    """Raised by loaders that fail."""


class CacheWorld:
    """One simulation."""

    def __init__(
        self, seed: int, installation: Installation, triggers: frozenset[str] = frozenset(), scene: str = ""
    ) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        self.random = random = scheduler.random
        self.faults = Faults(scheduler)
        self.server = Server(scheduler, self.faults)
        installation.begin(scheduler, self.server)
        self.triggers = triggers
        self.scene = scene or random.choice(list(SCENES))
        self.same_server = random.random() < 0.5 or bool(triggers)
        self.begin_scene, how = SCENES[self.scene]
        self.chances = dict(how.get("chances", {}))
        self.failures = how.get("failures", 0)
        self.cache: dict[str, Any] = {}
        self.database = 1
        self.offset = 0.0
        self.rules = CacheRules(self)
        self.settings = AliasSettings(
            "default", MemoryBackend, LOCATION, {}, "lock", 30_000, 10.0, 3600.0, False, False, False, (), "answer"
        )
        self.clients = [self._new_client("p1"), self._new_client("p2")]
        self.actors: list[Actor] = []

    @property
    def processes(self) -> list[Process]:
        return self.scheduler.processes

    def _new_client(self, name: str) -> CacheClient:
        return CacheClient(self, Process(self.server, name, self.settings))

    def run(self) -> None:
        jitter, store_module.random = store_module.random, lambda: 0.0
        try:
            self.scheduler.log(
                "the scene: %s, %s", self.scene, "one server" if self.same_server else "separate servers"
            )
            for trigger in sorted(self.triggers):
                TRIGGERS[trigger](self)
            if not self.triggers:
                self._populate()
                self._disasters()
            self.scheduler.run_until(self._quiet, LATEST)
            self.rules.check_end()
        finally:
            store_module.random = jitter

    def _populate(self) -> None:
        """Start the scene, once or several times in a row."""
        for wave in range(self.random.choice([1, 11, 13])):
            self.offset = wave * self.random.choice([0.0, 0.002, 0.01, 0.1])
            self.begin_scene(self)

    def close(self) -> None:
        for process in self.processes:
            if not process.dead:
                process.kill()
        self.server.forget()
        for client in self.clients:
            client.coordinator.retries.drop()

    def _quiet(self) -> bool:
        living = [client for client in self.clients if not client.process.dead]
        return not any(client.process.busy or client.coordinator.retries.pending for client in living)

    # Threads

    def begin(self, client: CacheClient, name: str, act: Callable[[], Any], after: float | None = None) -> Actor:
        after = self.offset + self.random.choice([0.0, 0.001, 0.01]) if after is None else after
        actor = client.process.thread(f"{name} {len(self.actors) + 1}", act, after)
        self.actors.append(actor)
        return actor

    def _request(self, client: CacheClient, key: str, **options: Any) -> LoadRequest:
        return LoadRequest(
            client.coordinator, key, None, self.loader(key), options_of({"ttl": 60, "jitter": 0, **options})
        )

    def caller(self, client: CacheClient, key: str = KEY, **options: Any) -> None:
        def get() -> dict[str, Any]:
            return {key: run(get_value(self._request(client, key, **options)), client.coordinator.performer)}

        self._ask(client, "caller", [key], options, get)

    def many(self, client: CacheClient, *keys: str, **options: Any) -> None:
        def get() -> dict[str, Any]:
            loaders = {key: self.loader(key) for key in keys}
            load = lambda call: {key: loaders[key]() for key in call}  # noqa: E731
            given = options_of({"ttl": 60, "jitter": 0, **options})
            return run(get_values(client.coordinator, keys, None, load, given), client.coordinator.performer)

        self._ask(client, "caller of many", list(keys), options, get)

    def refresher(self, client: CacheClient, key: str = KEY, **options: Any) -> None:
        def get() -> dict[str, Any]:
            return {key: run(reload_value(self._request(client, key, **options)), client.coordinator.performer)}

        self.rules.disturbed += 1
        self._ask(client, "refresher", [key], options, get)

    def _ask(
        self,
        client: CacheClient,
        name: str,
        keys: list[str],
        options: dict[str, Any],
        get: Callable[[], dict[str, Any]],
    ) -> None:
        def ask() -> None:
            oldest = {key: self.rules.min_version[key] for key in keys}
            oldest_in_group = self.rules.min_version_of_group if "groups" in options else 0
            call = CacheCall(current(), oldest, oldest_in_group, self.scheduler.now)
            try:
                results = get()
            except (LoaderFailed, LoadFailed, LoadTimeout) as failure:
                self.scheduler.log("%s is given %r", call.actor.name, failure)
                return
            except Interrupted:
                self.rules.interrupted_actors.add(call.actor.name)
                return
            call.values = {key: result.value for key, result in results.items()}
            call.source = ",".join(result.source for result in results.values())
            self.scheduler.log("%s is given %s (%s)", call.actor.name, call.values, call.source)
            self.rules.check_result(call)

        self.begin(client, name, ask)

    def loader(self, key: str) -> Callable[[], Any]:
        def load() -> Any:
            actor = current()
            self.rules.loads[key] += 1
            self.scheduler.log("%s loads %s", actor.name, key)
            actor.sleep(self.random.choice([1e-4, 1e-3, 1e-2]))
            version = self.database
            actor.sleep(self.random.choice([1e-4, 1e-3, 1e-2]))
            if self.failures and self.random.random() < 0.4:
                self.failures -= 1
                self.rules.disturbed += 1
                self.faults.count("failure")
                raise LoaderFailed(str(version))
            return LOADED, version, actor.name, self.rules.loads[key]

        return load

    def invalidator(self, client: CacheClient, key: str = KEY, **how: int) -> None:
        def work() -> None:
            before = self._change()
            failure = run(
                invalidate_all(client.coordinator, [(client.coordinator.key(key, None), key, None)], **how),
                client.coordinator.performer,
            )
            if failure is not None:
                self.scheduler.log("the invalidation failed, and is repeated")
            if how.get("stale_ms"):
                return
            if failure is not None:
                self.rules.failed_invalidations.append((client, before, key))
            else:
                self.rules.invalidated_up_to(before, key)

        self.rules.disturbed += 1 if self.same_server else 2
        self.begin(client, "invalidator", work)

    def group_invalidator(self, client: CacheClient) -> None:
        def work() -> None:
            before = self._change()
            stamps = client.coordinator.group_keys(("g",), None)
            items = [(stored_key, key, None) for key, stored_key in stamps]
            if run(invalidate_all(client.coordinator, items), client.coordinator.performer) is None:
                self.rules.group_invalidated_up_to(before)

        self.rules.disturbed += 2
        self.begin(client, "invalidator of the group", work)

    def writer(self, client: CacheClient, key: str = KEY) -> None:
        def work() -> None:
            before = self._change()
            full = client.coordinator.key(key, None)
            with write_guard(client.coordinator, [full]):
                current().sleep(self.random.choice([self.faults.trip(), 0.005]))
                self._put(full, key, (WRITTEN, before, current().name, 0))
                current().sleep(self.random.choice([self.faults.trip(), 0.005]))
            if not client.coordinator.down:
                self.rules.invalidated_up_to(before, key)

        self.rules.disturbed += 1
        self.begin(client, "writer", work)

    def clearer(self, client: CacheClient, *keys: str) -> None:
        def work() -> None:
            before = self._change()
            with clear_guard(client.coordinator):
                current().sleep(self.faults.trip())
                self.cache.clear()
                if self.same_server:  # FLUSHDB deletes everything
                    store = self.server.store
                    for part in (store.values, store.records, store.fences, store.queues):
                        part.clear()
                current().sleep(self.faults.trip())
            if not client.coordinator.down:
                for key in keys or (KEY,):
                    self.rules.invalidated_up_to(before, key)

        self.rules.disturbed += 3
        self.rules.cleared = True
        self.begin(client, "clearer", work)

    def worker(self, client: CacheClient, token: str, key: str = KEY, **options: Any) -> None:
        """Execute a load that was handed to a worker."""
        request = self._request(client, key, **options)
        self.begin(client, "worker", lambda: run(carry_out(request, token), client.coordinator.performer))

    def _change(self) -> int:
        self.database += 1
        self.scheduler.log("the database has %s", self.database)
        before = self.database
        current().sleep(self.faults.trip())
        return before

    @property
    def disturbed(self) -> int:
        return self.rules.disturbed

    @disturbed.setter
    def disturbed(self, count: int) -> None:
        self.rules.disturbed = count

    def put(self, version: int, seconds: float | None = None, key: str = KEY) -> None:
        """Put a value into the cache before the first caller."""
        if self.actors:
            return
        value = (LOADED, version, "another one", 0)
        if self.same_server:
            full = self.clients[0].coordinator.key(key, None)
            self.server.store.values[full] = pickle.dumps(value), None if seconds is None else seconds
        else:
            self.cache[key] = value if seconds is None else values.Envelope(value, self.server.wall() + seconds)

    def _put(self, full: str, key: str, value: Any) -> None:
        if self.same_server:
            self.server.store.values[full] = pickle.dumps(value), None
        else:
            self.cache[key] = value

    # Faults

    def _disasters(self) -> None:
        random = self.random
        self.faults.slowness = random.choice([3e-4, 1e-3, 3e-3])
        names = {"reply": "reply lost", "request": "request lost", "late": "late"}
        for kind, count in self.chances.items():
            if kind in names:
                self.faults.chances[names[kind]] = 0.1
                self.faults.left += count
            elif kind in ("death", "outage", "stall", "interrupt"):
                for _ in range(count):
                    moment = random.uniform(0.0, random.choice([0.005, 0.02, 0.3]))
                    self.scheduler.at(moment, getattr(self, f"_{kind}"))

    def _death(self) -> None:
        number = self.random.randrange(2)
        client = self.clients[number]
        self.faults.count("death")
        self.scheduler.log("*** %s dies", client.process.name)
        self.rules.disturbed += 1
        client.process.kill()

    def _stall(self) -> None:
        self.faults.count("stall")
        self.scheduler.log("*** all processes stand still for 40 s")
        self.rules.disturbed += 1
        for client in self.clients:
            client.process.stop(40.0)

    def _outage(self) -> None:
        seconds = self.random.choice([0.5, 5.0, 30.0])
        self.faults.count("outage")
        self.scheduler.log("*** the server is down for %s s", seconds)
        self.server.down_until = self.scheduler.now + seconds

    def _interrupt(self) -> None:
        mortal = [actor for actor in self.actors if not actor.over and not actor.process.dead and actor]
        if mortal:
            actor = self.random.choice(mortal)
            self.faults.count("interrupt")
            self.rules.disturbed += 1
            self.rules.interrupted_actors.add(actor.name)
            self.scheduler.log("*** %s is interrupted", actor.name)
            actor.interruptions += 1
            actor.wake()


class CacheClient:
    """The cache in one process: the coordinator of the package, and effects on the simulated cache."""

    def __init__(self, world: CacheWorld, process: Process) -> None:
        self.world = world
        self.process = process
        world.scheduler.enter(process)
        self.coordinator = CacheCoordinator(
            ALIAS, process.engine, KeyLayout("load"), Pickled() if world.same_server else None
        )
        world.scheduler.enter(None)
        self.coordinator.performer.handlers |= {
            LeadInBackground: self._lead_in_background,
            Fetch: lambda effect: self._cached(lambda cache: cache.get(effect.key, MISSING)),
            FetchMany: lambda effect: self._cached(
                lambda cache: {key: cache[key] for key in effect.keys if key in cache}
            ),
            Store: lambda effect: self._cached(lambda cache: cache.__setitem__(effect.key, effect.value)),
            Add: self._add,
            Delete: lambda effect: self._cached(lambda cache: cache.pop(effect.key, None)),
        }

    def _lead_in_background(self, effect: LeadInBackground) -> None:
        self.world.begin(
            self, f"{current().name} in the background", partial(run, effect.program, self.coordinator.performer), 0.0
        )

    def _add(self, effect: Add) -> bool:
        if not self.world.same_server:
            return self._cached(lambda cache: cache.setdefault(effect.key, effect.value) == effect.value)
        stamps = self.world.server.store.values
        current().sleep(self.world.faults.trip())
        return stamps.setdefault(effect.stored_key, (effect.value.encode(), None))[0] == effect.value.encode()

    def _cached(self, do: Callable[[dict[str, Any]], Any]) -> Any:
        self.world.server.effects += 1
        current().sleep(self.world.faults.trip())
        done = do(self.world.cache)
        self.world.rules.check_cache()
        current().sleep(self.world.faults.trip())
        return done

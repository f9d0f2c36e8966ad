"""Parts of the world in ``stepping``: who acts, and the processes in which they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from django_redis_locks import LockBackendError
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.cache.results import MISSING
from django_redis_locks.cache.roads import Road
from django_redis_locks.cache.values import Pickled
from django_redis_locks.cache.worlds import Behind, Fetch, FetchMany, Keep, Remove, Together
from django_redis_locks.core.effects import Command, Pause, Place, Sweep
from django_redis_locks.core.keys import Spelling
from django_redis_locks.core.runner import run
from django_redis_locks.engine import Engine

if TYPE_CHECKING:
    from tests.cache.stepping import World

ALIAS = "stepping"


class Died(BaseException):
    """A process is gone: whatever it does afterwards has no effect."""


class Struck(BaseException):
    """What interrupts one caller in the middle of everything."""


@dataclass(eq=False)
class Actor:
    """One thread of a process, up to its next step."""

    name: str
    process: Process
    act: Callable[[], None]
    where: str = ""
    wakes: Callable[[], bool] | None = None
    until: float = inf
    over: bool = False
    slept: bool = False
    strike: bool = False
    struck: bool = False

    def __post_init__(self) -> None:
        self.world = self.process.world
        self.green = greenlet(self._run)
        self.green.actor = self

    def go(self) -> None:
        self.green.switch()

    def _run(self) -> None:
        try:
            self.act()
        except (Died, Struck):
            pass
        except BaseException as failure:  # noqa: BLE001 - the test tells
            self.world.broken.append(f"{self.name} ends with {failure!r}")
        finally:
            self.over = True

    def pause(self, where: str, wakes: Callable[[], bool] | None = None, until: float = inf) -> None:
        if self.process.dead:
            raise Died
        self.where, self.wakes, self.until = where, wakes, until
        self.green.parent.switch()
        self.wakes, self.until = None, inf
        if self.process.dead:
            raise Died
        if self.strike:
            self.strike = False
            raise Struck(where)

    @property
    def ready(self) -> bool:
        return self.wakes is None or self.wakes() or self.until <= self.world.now


def me() -> Actor:
    actor: Actor = getcurrent().actor
    return actor


class StepGate:
    """A gate in this world."""

    def __init__(self) -> None:
        self.opened = False

    def set(self) -> None:
        self.opened = True

    def wait(self, seconds: float) -> None:
        actor = me()
        looks = actor.process.road.looks._flying.values()
        if seconds > 0 and not any(self in look.gates for look in looks):  # for a load, not for the look of another one
            actor.slept = True
        actor.pause("sleeps", lambda: self.opened, actor.world.now + max(seconds, 0.0))
        self.opened = False


@dataclass
class Janitor:
    """Renews, and clears away, when the world lets it."""

    process: Process
    watched: dict[str, tuple[Any, Any, int]] = field(default_factory=dict)
    jobs: list[Command[Any]] = field(default_factory=list)

    def watch(self, hold: Any, prolong: Any, lease: int) -> None:
        self.watched[hold.token] = hold, prolong, lease

    def unwatch(self, hold: Any) -> None:
        self.watched.pop(hold.token, None)

    def sweep(self, effect: Sweep) -> None:
        self._add(effect.delete)

    def send(self, command: Command[int], place: Place) -> None:
        self._add(command)

    def _add(self, command: Command[Any]) -> None:
        if not self.process.dead:
            self.jobs.append(command)

    def renew(self) -> None:
        for hold, prolong, lease in list(self.watched.values()):
            command = prolong(hold.token, lease)
            if not command.read(self.process.backend.call(command)):
                self.unwatch(hold)

    def work(self) -> None:
        job = self.jobs.pop(0)
        self.process.world.say(f"  the janitor of {self.process.name}: {job.name}")
        job.read(self.process.backend.call(job))


class Process:
    """A process: a road of its own to the store that all share."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.janitor = Janitor(self)
        self.begin()

    def begin(self) -> None:
        self.backend = MemoryBackend(self.world.location)
        self.backend.identity = f"{self.world.location} {self.name}"  # queues of its own
        engine = Engine(self.backend)
        engine._janitor = self.janitor  # type: ignore[assignment]
        engine._inbox._id = self.name
        engine.watch, engine.unwatch = self.janitor.watch, self.janitor.unwatch
        engine.handlers |= {Command: self._ask, Pause: self._pause, Sweep: self.janitor.sweep}
        self.engine = engine
        self.road = Road(ALIAS, engine, Spelling("load"), Pickled() if self.world.fused else None)
        self.road.world.handlers |= {
            Command: self._ask,
            Together: self._together,
            Behind: self._behind,
            Fetch: lambda effect: self._cached("reads", lambda cache: cache.get(effect.key, MISSING)),
            FetchMany: lambda effect: self._cached(
                "reads", lambda cache: {key: cache[key] for key in effect.keys if key in cache}
            ),
            Keep: self._keep,
            Remove: lambda effect: self._cached("removes", lambda cache: cache.pop(effect.key, None)),
        }

    def die(self) -> None:
        self.dead = True
        store = self.world.store
        for name in [name for name in store.inboxes if name.endswith(self.name)]:
            del store.inboxes[name]
        self.janitor.watched.clear()
        self.janitor.jobs.clear()

    def _ask(self, command: Command[Any]) -> Any:
        world, what = self.world, command.name
        me().pause(what)
        fault = world.fault(command)
        if fault == "request":
            raise LockBackendError("no answer", unanswered=True, passing=True)
        reply = self.backend.call(command)
        world.look()
        me().pause(f"{what} answers {str(reply)[:60]}")
        if fault:
            raise LockBackendError("no answer", unanswered=True, passing=True)
        return command.read(reply)

    def _together(self, effect: Together) -> list[Any]:
        replies: list[Any] = []
        for command in effect.commands:
            try:
                replies.append(self._ask(command))
            except LockBackendError as failure:
                replies.append(failure)
        return replies

    def _pause(self, effect: Pause) -> None:
        me().pause("rests", lambda: False, self.world.now + effect.seconds)

    def _behind(self, effect: Behind) -> None:
        self.world.begin(self, f"{me().name} behind", lambda: run(effect.program, self.road.world))

    def _cached(self, what: str, do: Callable[[dict[str, Any]], Any]) -> Any:
        me().pause(f"{what} the cache")
        done = do(self.world.cache)
        self.world.look()
        me().pause(f"{what} the cache, and knows")
        return done

    def _keep(self, effect: Keep) -> None:
        self._cached("writes", lambda cache: cache.__setitem__(effect.key, effect.value))
        if self.road.down:
            self.world.unfenced.add(str(effect.value))

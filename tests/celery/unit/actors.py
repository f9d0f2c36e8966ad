"""Parts of the world in ``stepping``: who acts, what is stored, what is sent and what is known of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from celery.utils.threads import LocalStack
from greenlet import greenlet

from celery_locks.job import Job, read
from django_redis_locks import LockBackendError, Record

if TYPE_CHECKING:
    from tests.celery.unit.stepping import World

LEASE = 30.0
LATEST = 5000.0
"""Seconds of this world's clock after which nothing should be left to do."""


class Died(BaseException):
    """A process is gone: whatever it does afterwards has no effect."""


class Refused(Exception):
    """A body that fails."""


@dataclass(eq=False)
class Actor:
    name: str
    world: World
    act: Callable[[], None]
    where: str = ""
    wakes: Callable[[], bool] | None = None
    until: float = 0.0
    dead: bool = False
    over: bool = False
    requests: Any = field(default_factory=LocalStack)
    """Celery's, which are a thread's otherwise."""

    def __post_init__(self) -> None:
        self.green = greenlet(self._run)

    def go(self) -> None:
        """Up to its next step."""
        self.world.current, self.world.task.request_stack = self, self.requests
        self.green.switch()

    def _run(self) -> None:
        try:
            self.act()
        except Died:
            pass
        except BaseException as failure:  # noqa: BLE001 - the test tells
            self.world.broken.append(f"{self.name}: {failure!r}")
        finally:
            self.over = True

    def pause(self, where: str, wakes: Callable[[], bool] | None = None, until: float = 0.0) -> None:
        if self.dead:
            raise Died
        self.where, self.wakes, self.until = where, wakes, until
        self.green.parent.switch()
        self.wakes = None
        if self.dead:
            raise Died

    @property
    def ready(self) -> bool:
        return self.wakes is None or self.wakes()


class Stored:
    """A record, and who renews it."""

    def __init__(self, record: Record, ends: float, owner: Actor | None) -> None:
        self.record = record
        self.ends = ends
        self.owner = owner


@dataclass
class Message:
    id: str
    args: tuple[Any, ...]
    headers: dict[str, Any]
    tries: int
    due: float
    redelivered: bool = False
    counted: bool = False


class Place:
    """``celery_locks.place.Place`` in this world."""

    def __init__(self, world: World, key: str) -> None:
        self.world = world
        self.key = key
        self.ref = SimpleNamespace(terms=SimpleNamespace(wait=10.0), touch=self._touch)

    def look(self) -> Job | None:
        return self._do("look", self._found)

    def put(self, over: Job | None, job: Job, expire: float | None, **terms: Any) -> tuple[bool, Job | None]:
        def write() -> tuple[bool, Job | None]:
            if self._version() != (0 if over is None else over.known.version):
                return False, self._found()
            world = self.world
            world.version = max(world.version + 1, int(world.now * 1_000_000))
            lease = LEASE if expire is None else float(expire)
            record = Record(world.version, job.fields(), lease)
            renewed = world.me() if terms.get("renew") else None
            world.records[self.key] = Stored(record, world.now + lease, renewed)
            return True, self._found()

        return self._do(f"put {job.state} {job.id}", write)

    def hold(self, over: Job | None, job: Job, expire: float | None, max_hold: Any, lost: Any) -> Any:
        return self.put(over, job, expire, renew=True)

    def drop(self, job: Job) -> bool:
        def drop() -> bool:
            if self._version() != job.known.version:
                return False
            self.world.records.pop(self.key)
            return True

        return self._do(f"drop {job.id}", drop)

    def change(self, job: Job | None, seconds: float) -> Job | None:
        version = 0 if job is None else job.known.version
        until = LATEST if seconds == -1 else self.world.now + seconds
        self.world.me().pause("change", lambda: self._version() != version or self.world.now >= until, until)
        return self._found()

    def _touch(self, record: Record, expire: float, shorten: bool = False) -> None:
        stored = self.world.records.get(self.key)
        if stored is not None and stored.record.version == record.version:
            stored.ends, stored.owner = self.world.now + expire, None

    def _do(self, where: str, act: Callable[[], Any]) -> Any:
        world = self.world
        world.me().pause(f"{where} at {self.key[-4:]}")
        fault = world.fault("store")
        done = None if fault == "before" else act()
        if fault:
            raise LockBackendError("the store is down")
        return done

    def _stored(self) -> Stored | None:
        stored = self.world.records.get(self.key)
        if stored is None:
            return None
        owner = stored.owner
        if owner is not None and not owner.dead and not owner.over:
            stored.ends = self.world.now + LEASE
        if stored.ends <= self.world.now:
            del self.world.records[self.key]
            return None
        return stored

    def _version(self) -> int:
        stored = self._stored()
        return 0 if stored is None else stored.record.version

    def _found(self) -> Job | None:
        stored = self._stored()
        if stored is None:
            return None
        left = stored.ends - self.world.now
        return read(Record(stored.record.version, stored.record.fields, left))


class Results:
    """A result backend."""

    def __init__(self) -> None:
        self.metas: dict[str, dict[str, Any]] = {}

    def get_task_meta(self, id: str) -> dict[str, Any]:
        return self.metas.get(id, {"status": "PENDING", "result": None})

    def get_state(self, id: str) -> str:
        return str(self.get_task_meta(id)["status"])

    def mark_as_revoked(self, id: str, reason: str, **_: Any) -> None:
        self.store(id, "REVOKED", reason)

    def store(self, id: str, status: str, result: Any) -> None:
        self.metas[id] = {"status": status, "result": result}

"""The permit world: processes that contend for semaphores or read-write locks, with faults that the seed chooses."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockAlreadyHeld, LockBackendError, LockLost
from django_redis_locks.primitives.shared.permit_steps import SEMAPHORE
from django_redis_locks.primitives.shared.rwlock_steps import ALL_PERMITS, RWLOCK
from tests.simulation.fair_order import FairOrder
from tests.simulation.lock_plans import Visit, draw_visit
from tests.simulation.permit_rules import PermitRules
from tests.simulation.visit_rules import store_key
from tests.simulation.visit_world import KEYS, VisitWorld

if TYPE_CHECKING:
    from random import Random

    from django_redis_locks import Grant
    from tests.simulation.faces import Face
    from tests.simulation.installation import Installation
    from tests.simulation.process import Process
    from tests.simulation.visit_rules import Section


@dataclass
class PermitVisit(Visit):
    """A visit to a semaphore, or to one side of a read-write lock.

    Attributes:
        kind: "semaphore" or "rwlock".
        limit: the limit that the caller names.
        permits: how many it acquires: of a read-write lock one to read, all to write.
    """

    kind: str = SEMAPHORE
    limit: int = 1
    permits: int = 1

    @property
    def writes(self) -> bool:
        return self.kind == RWLOCK and self.permits > 1


class PermitWorld(VisitWorld):
    """One simulation. Further steps of its visits: ("set limit", limit) of a semaphore; and of a read-write lock ("read
    inside", 0) and ("downgrade", seconds as a reader) of a writer, ("upgrade", 0) of a reader."""

    rules: PermitRules

    def __init__(self, seed: int, installation: Installation, triggers: frozenset[str] = frozenset()) -> None:
        self.kind = RWLOCK if seed % 2 else SEMAPHORE
        super().__init__(seed, installation)
        self.limit = self.scheduler.random.choice([1, 2, 3, 4])

    def make_rules(self, seed: int) -> PermitRules:
        rules = PermitRules(self)
        self.order = FairOrder(self.server, [store_key(key) for key in KEYS])
        return rules

    def draw_visit(self, random: Random) -> PermitVisit:
        visit = PermitVisit(**vars(draw_visit(random, KEYS, self.lease)), kind=self.kind)
        if self.kind == SEMAPHORE:
            self._draw_permits(random, visit)
        else:
            self._draw_side(random, visit)
        return visit

    def _draw_permits(self, random: Random, visit: PermitVisit) -> None:
        visit.limit = self.limit if random.random() < 0.85 else max(1, self.limit + random.choice([-1, 1]))
        if not visit.block:
            visit.permits = random.choice([1, 1, random.randint(1, visit.limit)])
        if random.random() < 0.1:
            visit.steps.append(("set limit", random.choice([1, 2, 3, 4])))

    @staticmethod
    def _draw_side(random: Random, visit: PermitVisit) -> None:
        visit.limit = ALL_PERMITS
        visit.permits = random.choice([1, 1, ALL_PERMITS])
        drawn = random.random()
        if not visit.writes:
            if drawn < 0.15:
                visit.steps.append(("upgrade", 0.0))
        elif drawn < 0.2:
            visit.steps.append(("read inside", 0.0))
        elif drawn < 0.5 and not visit.never_releases:
            visit.block = False
            visit.steps.append(("downgrade", random.choice([0.0, 0.02, 0.5, 3.0])))

    def lock_of(self, process: Process, visit: PermitVisit) -> Any:
        options = {"expire": visit.expire, "wait": visit.wait}
        if visit.kind == SEMAPHORE:
            return process.locks.semaphore(visit.key, limit=visit.limit, **options)
        lock = process.locks.rwlock(visit.key, **options)
        return lock.write if visit.writes else lock.read

    async def _acquire(self, face: type[Face], lock: Any, visit: PermitVisit) -> Grant | None:
        if visit.permits in (1, ALL_PERMITS):
            return await super()._acquire(face, lock, visit)
        grant: Grant | None = await face.call(lock, "acquire", timeout=visit.wait, permits=visit.permits)
        return grant

    async def _visit(self, process: Process, face: type[Face], visit: PermitVisit, section: Section) -> None:
        try:
            await super()._visit(process, face, visit, section)
        except ValueError as error:
            self.rules.wants_too_many(section, error)

    async def _do(
        self, process: Process, face: type[Face], lock: Any, section: Section, kind: str, amount: float
    ) -> None:
        visit: PermitVisit = section.visit
        if kind == "set limit":
            self.rules.sets_limit(visit.key, int(amount))
            await face.call(lock, "set_limit", int(amount))
        elif kind == "reenter" and self.kind == SEMAPHORE:
            with suppress(ValueError):  # another caller may have set a smaller limit
                await self._hold_another(face, lock)
        elif kind == "read inside":
            await super()._do(process, face, self.lock_of(process, _to_read(visit)), section, "reenter", 0.0)
        elif kind == "upgrade":
            with suppress(LockAlreadyHeld):
                await self._hold_another(face, self.lock_of(process, replace(visit, permits=ALL_PERMITS)))
                self.rules.upgraded(section)
        elif kind == "downgrade":
            await self._downgrade(process, face, section, amount)
        else:
            await super()._do(process, face, lock, section, kind, amount)

    @staticmethod
    async def _hold_another(face: type[Face], lock: Any) -> None:
        other = await face.call(lock, "acquire", timeout=0.5)
        if other is not None:
            try:
                await face.sleep(0.001)
            finally:
                with suppress(LockLost):
                    await face.call(other, "release")

    async def _downgrade(self, process: Process, face: type[Face], section: Section, seconds: float) -> None:
        visit = _to_read(section.visit)
        inner = await face.call(self.lock_of(process, visit), "acquire", timeout=1.0)
        if inner.hold is not section.grant.hold:  # the write lock was lost
            await face.call(inner, "release")
            return
        reading = self.rules.reads_inside(section, visit, inner)
        try:
            await self._release(section, partial(face.call, section.grant, "release"))
            await face.sleep(seconds)
            self.rules.inside(reading)
        finally:
            try:
                await self._release(reading, partial(face.call, inner, "release"))
            finally:
                self.rules.ends(reading)

    def force(self, process: Process) -> None:
        key = self.scheduler.random.choice(KEYS)
        visit = replace(self.draw_visit(self.scheduler.random), key=key)
        self.rules.forced(key)
        with suppress(LockBackendError):
            self.lock_of(process, visit).force_release("simulated")
        self.rules.forced(key)


def _to_read(visit: PermitVisit) -> PermitVisit:
    return replace(visit, permits=1)

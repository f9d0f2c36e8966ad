"""The lock world: processes that contend for a few locks, with faults that the seed chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError
from tests.simulation.fair_order import FairOrder
from tests.simulation.lock_defects import TRIGGERS
from tests.simulation.lock_plans import Visit, draw_several, draw_visit
from tests.simulation.lock_rules import LockRules
from tests.simulation.multi_visits import visit_several
from tests.simulation.visit_rules import store_key
from tests.simulation.visit_world import KEYS, VisitWorld

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.faces import Face
    from tests.simulation.installation import Installation
    from tests.simulation.process import Process


class LockWorld(VisitWorld):
    """One simulation."""

    def __init__(self, seed: int, installation: Installation, triggers: frozenset[str] = frozenset()) -> None:
        self.triggers = triggers
        self.fair = seed % 4 == 3 and not triggers
        """All locks are fair ones."""
        self.several = seed % 8 == 5 and not triggers
        """Most visits are to several locks at once."""
        super().__init__(seed, installation)

    def make_rules(self, seed: int) -> LockRules:
        rules = LockRules(self)
        self.order = FairOrder(self.server, [store_key(key) for key in KEYS] if self.fair else [])
        return rules

    def draw_visit(self, random: Random) -> Visit:
        visit = draw_visit(random, KEYS, self.lease)
        return draw_several(random, visit, KEYS) if self.several else visit

    async def visit(self, process: Process, face: type[Face], visit: Any) -> None:
        """Acquire the lock of a visit, or several locks, hold them, and release them."""
        if visit.keys:
            await visit_several(self.rules, process, face, visit)
        else:
            await super().visit(process, face, visit)

    def run(self) -> None:
        if not self.triggers:
            super().run()
            return
        for trigger in sorted(self.triggers):
            TRIGGERS[trigger](self, self.processes[0])
        for process in self.processes[1:]:
            self.populate(process)
        self.finish()

    def lock_of(self, process: Process, visit: Visit) -> Any:
        make = process.locks.fair_lock if self.fair else process.locks.lock
        return replace(make(visit.key, expire=visit.expire, wait=visit.wait), reentrant=visit.reentrant)

    def force(self, process: Process) -> None:
        key = self.scheduler.random.choice(KEYS)
        self.rules.forced(key)
        try:
            process.locks.lock(key).force_release("simulated")
        except LockBackendError:
            pass
        self.rules.forced(key)

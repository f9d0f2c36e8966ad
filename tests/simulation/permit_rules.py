"""The rules for semaphores and read-write locks: those of their store, and those of their holders and waiters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django_redis_locks.core.tuning import DEFAULT
from tests.simulation.permit_store import PermitStore, Registered, View, moments
from tests.simulation.visit_rules import (
    LONGEST_POLL,
    SLACK,
    Section,
    VisitRules,
    believes_to_hold,
    store_key,
    store_key_of,
)
from tests.simulation.visit_world import KEYS

if TYPE_CHECKING:
    from django_redis_locks import Grant
    from django_redis_locks.core.commands import Command
    from tests.simulation.permit_world import PermitVisit, PermitWorld
    from tests.simulation.process import Process

LONGEST_SILENCE = DEFAULT.waiter_ttl / 1000
"""Seconds after which a waiter that is stopped doesn't keep those behind it waiting any more."""


class PermitRules(VisitRules):
    """Checks the rules in one permit world, while it runs and at its end."""

    def __init__(self, world: PermitWorld) -> None:
        self.store = PermitStore(world, [store_key(key) for key in KEYS])
        self.writes: Counter[str] = Counter()
        """The number of writers so far, by key."""
        self.seen: dict[Section, int] = {}
        """For each holder the number of writers when it entered."""
        self.set_limits: dict[str, int] = {}
        """The smallest limit that was ever set, by key."""
        self.idle_since: dict[tuple[Section, bool], float] = {}
        """Since when a waiter might have had its permits; and whether it has to wait for the silence of a waiter before
        it."""
        self._observed = 0.0
        super().__init__(world)

    # The server

    def _observe(self, command: Command[Any], reply: Any) -> None:
        super()._observe(command, reply)
        waiting = [section for section in self.sections if section.waits]
        for section in waiting:
            self._check_waiter(section)
        self.store.observe(command, reply)
        self._observed = self.now
        for section in waiting:
            self._update_waiter(section)
        for section in self.sections:
            self._check_holder(section)

    def data_lost(self) -> None:
        super().data_lost()
        self.idle_since.clear()
        self.world.order.look()
        self.store.look()

    # Waiters

    def _check_waiter(self, section: Section) -> None:
        """[L33] No waiter waits while its permits are free, and those of the living waiters before it: it asks every two
        seconds. A waiter that is killed is skipped, one that is stopped delays the others until it was silent for too
        long."""
        view = self.store.views[store_key_of(section)]
        process = section.process
        if process.dead or process.stopped:
            return
        for stopped in (False, True):
            since = self.idle_since.get((section, stopped))
            if since is None:
                ends = moments(view, max(self._observed, section.asked), self.now)
                since = next((end for end in ends if self._idle(section, view, end, stopped)), self.now)
            longest = LONGEST_POLL + (LONGEST_SILENCE if stopped else 0.0)
            if self.now - since > longest:
                longest += self.world.faults.between(since - SLACK, self.now, process)
                if self.now - since > longest:
                    self._violation(f"{section} waits although its permits are free since {since:.4f}")

    def _update_waiter(self, section: Section) -> None:
        view = self.store.views[store_key_of(section)]
        for stopped in (False, True):
            if self._idle(section, view, self.now, stopped):
                self.idle_since.setdefault((section, stopped), self.now)
            else:
                self.idle_since.pop((section, stopped), None)

    def _idle(self, section: Section, view: View, at: float, stopped: bool) -> bool:
        """Whether the permits are free that a waiter wants, and those that the first waiter wants; the first one that
        runs if ``stopped``."""
        visit: PermitVisit = section.visit
        if visit.permits > view.free(at, visit.limit):
            return False
        line = [waiter for waiter in view.line if self.store.alive(waiter)]
        if stopped:
            line = [waiter for waiter in line if self._waits(waiter, section)]
        return not line or line[0].permits <= view.free(at, line[0].limit)

    def _waits(self, waiter: Registered, section: Section) -> bool:
        """Whether a caller waits behind a registration of the key of a section, in a process that isn't stopped."""
        return any(
            other.waits
            and other.process.name == waiter.process
            and not (other.process.dead or other.process.stopped)
            and other.visit.key == section.visit.key
            and other.visit.permits == waiter.permits
            for other in self.sections
        )

    def wants_too_many(self, section: Section, error: ValueError) -> None:
        """[L37] A request for more permits than the limit that was set raises."""
        self.scheduler.log("is refused: %s", error)
        section.waits = False
        if self.set_limits.get(section.visit.key, section.visit.permits) >= section.visit.permits:
            self._violation(f"{section} gets {error!r}, and no smaller limit was set")

    def sets_limit(self, key: str, limit: int) -> None:
        self.set_limits[key] = min(limit, self.set_limits.get(key, limit))

    # Holders

    def entered(self, section: Section, grant: Grant) -> None:
        super().entered(section, grant)
        self.store.adopted(grant.hold.token)
        self._checks_in(section)

    def reads_inside(self, writer: Section, visit: PermitVisit, grant: Grant) -> Section:
        """A writer has entered the read side, too."""
        section = self.begins(writer.process, visit)
        section.excused = writer.excused
        super().entered(section, grant)
        self.seen[section] = self.seen[writer]
        return section

    def _checks_in(self, section: Section) -> None:
        visit: PermitVisit = section.visit
        if visit.writes:
            self.writes[visit.key] += 1
        self.seen[section] = self.writes[visit.key]
        if believes_to_hold(section):
            for other in self.sections:
                beside = other.visit.key == visit.key and believes_to_hold(other) and other.hold is not section.hold
                if beside and (visit.writes or other.visit.writes):
                    self._violation(f"a writer isn't alone: {section} and {other}")
        self._check_holder(section)

    def inside(self, section: Section) -> None:
        """[L35] Since a caller entered, also as a writer that reads now, no other writer has."""
        if believes_to_hold(section) and self.seen[section] != self.writes[section.visit.key]:
            self._violation(f"{section} believes that it holds the lock, and a writer came in")

    def upgraded(self, section: Section) -> None:
        """[L35] A reader that wants to write raises at once, as long as it reads."""
        if believes_to_hold(section):
            self._violation(f"{section} reads, and acquires the write lock")

    def _check_holder(self, section: Section) -> None:
        """The store has the permits of each caller that believes to hold them."""
        if believes_to_hold(section):
            visit: PermitVisit = section.visit
            held = self.store.views[store_key_of(section)].holds.get(section.hold.token)
            enough = held is not None and held.ends > self.now
            if not enough or held is None or held.permits < visit.permits or held.fence != section.fence:
                self._violation(f"{section} believes that it holds permits, and the store has {held}")

    def released(self, section: Section) -> None:
        super().released(section)
        held = None
        if section.grant is not None:
            held = self.store.views[store_key_of(section)].holds.get(section.hold.token)
        if held is not None and not self.world.faults.between(section.asked - 3.0, self.now):
            if not section.hold.held:
                self._violation(f"{section} is released, and the store has {held}")
            elif section.visit.writes and held.permits > 1:
                self._violation(f"{section} only reads now, and the store has {held}")

    def _was_taken(self, section: Section) -> bool:
        if super()._was_taken(section) or section.grant is None:
            return True
        held = self.store.views[store_key_of(section)].holds.get(section.hold.token)
        return section.hold.token in self.store.lost or (held is not None and held.ends <= self.now)

    def killed(self, process: Process) -> None:
        super().killed(process)
        self.store.forget_grants()

    # End

    def check_end(self) -> None:
        super().check_end()
        if not self.scheduler.problems:
            self.store.check_end()
        for process in self.world.processes:
            if not process.dead and len(process.engine._queues) and not self.scheduler.problems:
                self._violation(f"{process.name} has a queue without a waiter")

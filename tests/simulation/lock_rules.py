"""The rules for locks with one holder."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks.core.tuning import DEFAULT
from tests.simulation.visit_rules import (
    LONGEST_POLL,
    PROMPT,
    SLACK,
    Section,
    VisitRules,
    believes_to_hold,
    store_key,
    store_key_of,
)

if TYPE_CHECKING:
    from django_redis_locks import Grant
    from django_redis_locks.core.commands import Command
    from tests.simulation.lock_world import LockWorld
    from tests.simulation.process import Process


@dataclass
class Free:
    """A period in which a lock was free. ``notified``: a release freed it, so the server notified a waiter."""

    begin: float
    end: float = inf
    notified: bool = False


@dataclass
class Key:
    """The history of one lock in the store.

    Attributes:
        free: the periods in which it was free; the last one may be open.
        granted_at: when the server granted it to a waiter that hasn't entered yet, or infinity.
        thefts: when a lock was taken from its holder, or its lease ended.
        newest: the largest fence of a holder so far.
    """

    free: list[Free] = field(default_factory=lambda: [Free(0.0)])
    losses: list[float] = field(default_factory=list)
    newest: int = 0
    granted_at: float = inf
    token: str = ""
    ends: float = 0.0


class LockRules(VisitRules):
    """Checks the rules in one lock world, while it runs and at its end."""

    def __init__(self, world: LockWorld) -> None:
        self.keys: dict[str, Key] = {}
        super().__init__(world)

    # The server

    def key(self, name: str) -> Key:
        return self.keys.setdefault(name, Key())

    def _observe(self, command: Command[Any], reply: Any) -> None:
        """Update the holder of the lock after each command."""
        super()._observe(command, reply)
        for name in command.keys:
            if "}:k:" in name:
                self._look(name, notified=command.name in ("lock/release", "multi/release"))

    def _look(self, name: str, notified: bool = False) -> None:
        found = self.world.server.store.records.get(name)
        key = self.key(name)
        token, ends = ("", 0.0) if found is None or found.ends <= self.now else (found.token, found.ends)
        if token != key.token:
            self._check_adoption(name)
            if key.token and key.ends <= self.now:  # its lease has ended
                key.losses.append(key.ends)
                key.free.append(Free(key.ends))
            elif key.token and not token:
                key.free.append(Free(self.now, notified=notified))
            if found is not None and token and found.unclaimed:
                key.granted_at = self.now
            if token and key.free[-1].end == inf:
                key.free[-1].end = self.now
                self._check_waiters(name, key.free[-1])
        key.token, key.ends = token, ends

    def _check_adoption(self, name: str) -> None:
        """A process adopts a lock that was granted to it, or frees it: a live one at once."""
        key = self.key(name)
        begin, key.granted_at = key.granted_at, inf
        if self.now - begin > PROMPT and not self.world.faults.between(begin - LONGEST_POLL, self.now):
            self._violation(f"{name} isn't adopted, though it was granted {self.now - begin:.3f} s ago")

    def _check_waiters(self, name: str, free: Free) -> None:
        """After a lock was free, check that no waiter has waited for it longer than allowed."""
        for section in self.sections:
            process = section.process
            if section.waits and not process.dead and not process.stopped and store_key_of(section) == name:
                self._check_wait(section, free)

    def _check_wait(self, section: Section, free: Free) -> None:
        begin, end = max(free.begin, section.asked), min(free.end, self.now)
        stolen = any(moment >= section.asked - LONGEST_POLL for moment in self.key(store_key_of(section)).losses)
        longest = PROMPT if free.notified and free.begin > section.asked and not stolen else LONGEST_POLL
        if end - begin > longest:
            excused = self.world.faults.between(section.asked - SLACK, end)
            if excused:
                longest = LONGEST_POLL + excused
            if end - begin > longest:
                self._violation(f"{section} waits although the lock is free since {begin:.4f}, for {end - begin:.3f} s")

    def _check_waiter(self, section: Section) -> None:
        for free in self.key(store_key_of(section)).free:
            if free.end >= section.asked:
                self._check_wait(section, free)

    def data_lost(self) -> None:
        super().data_lost()
        self.world.order.look()
        for name in list(self.keys):
            self.key(name).losses.append(self.now)
            self._look(name)

    def forced(self, name: str) -> None:
        super().forced(name)
        self.key(store_key(name)).losses.append(self.now)

    # Holders

    def entered(self, section: Section, grant: Grant) -> None:
        super().entered(section, grant)
        key = self.key(store_key_of(section))
        if grant.hold.token == key.token:
            self._check_adoption(store_key_of(section))
        if believes_to_hold(section):
            for other in self.sections:
                if other is not section and other.visit.key == section.visit.key and believes_to_hold(other):
                    self._violation(f"two hold the lock: {section} and {other}")
            if section.fence <= key.newest and not self.fences_fall:
                self._violation(f"{section} has a fence that isn't above {key.newest}")
            key.newest = section.fence

    def inside(self, section: Section) -> None:
        if believes_to_hold(section) and section.fence < self.key(store_key_of(section)).newest:
            self._violation(f"{section} believes that it holds the lock, and its fence is an old one")

    def _was_taken(self, section: Section) -> bool:
        self._look(store_key_of(section))
        key = self.key(store_key_of(section))
        asked = section.asked - DEFAULT.local_reuse_window  # the request for an adopted lock was sent earlier
        return super()._was_taken(section) or any(moment >= asked for moment in key.losses)

    def killed(self, process: Process) -> None:
        for key in self.keys.values():
            key.granted_at = inf
        super().killed(process)

    def several_waited(self, sections: list[Section]) -> None:
        """A caller that waits for several locks gets them when all of them are free."""
        common = [Free(sections[0].asked, self.now)]
        for section in sections:
            own = self.key(store_key_of(section)).free
            pairs = ((one, other) for one in common for other in own)
            common = [Free(max(one.begin, other.begin), min(one.end, other.end)) for one, other in pairs]
            common = [free for free in common if free.end > free.begin]
        longest = max((free.end - free.begin for free in common), default=0.0)
        if longest > LONGEST_POLL and longest > LONGEST_POLL + self.world.faults.between(sections[0].asked, self.now):
            self._violation(f"{sections[0]} waits although all of its locks are free for {longest:.3f} s")

    # End

    def check_end(self) -> None:
        super().check_end()
        for name in [] if self.scheduler.problems else self.keys:
            found = self.world.server.store.find(name)
            if found is not None:
                self._violation(f"{name} stays locked with fence {found.fence}")

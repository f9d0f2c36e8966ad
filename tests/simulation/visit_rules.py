"""The rules for the visits of threads and tasks to locks of any kind, which hold under all faults."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired
from django_redis_locks.core import events
from django_redis_locks.core.steps import positional
from django_redis_locks.core.tuning import DEFAULT

if TYPE_CHECKING:
    from django_redis_locks import Grant
    from django_redis_locks.core.commands import Command
    from django_redis_locks.core.hold import Hold
    from tests.simulation.process import Process

PROMPT = 0.2
"""Seconds after which a waiter gets a freed lock without faults: messages, and a thread switch."""

SLACK = 0.1
"""Seconds for round trips and thread switches."""

LONGEST_POLL = DEFAULT.max_poll_interval + DEFAULT.max_jitter + SLACK


@dataclass(eq=False)
class Section:
    """One visit to a lock, from the request to the release."""

    process: Process
    visit: Any
    asked: float
    waits: bool = True
    several: bool = False
    """It is one of several locks that are acquired together: it may wait for another one of them."""
    grant: Grant | None = None
    fence: int = 0
    entered: float = 0.0
    over: bool = False
    """Its release has begun."""
    ended: bool = False
    excused: bool = False
    """The lock was freed by force, or the server lost it."""
    released: bool = False
    loss_known: bool = False
    reported: bool = False
    """An event reported its loss."""

    def __str__(self) -> str:
        fence = f", fence {self.fence}" if self.fence else ""
        return f"{self.process.name}'s {self.visit.key!r} asked at {self.asked:.4f}{fence}"

    @property
    def hold(self) -> Hold:
        assert self.grant is not None
        return self.grant.hold


class VisitRules:
    """Checks the rules of one world, while it runs and at its end. A kind of lock adds rules for its store, and for those
    that hold or wait."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.sections: list[Section] = []
        self.last_data_loss = -inf
        self.server_clock_moved = False
        self.inheritance: dict[Process, set[str]] = {}
        """The tokens of the parent, which a forked child must not use, by child."""
        world.server.observers.append(self._observe)

    @property
    def now(self) -> float:
        now: float = self.scheduler.now
        return now

    def _violation(self, what: str) -> None:
        self.scheduler.violation(what)

    # The server

    def _observe(self, command: Command[Any], reply: Any) -> None:
        """Check each command that the server has executed."""
        sender = self.world.server.sender
        if sender is not None and not self.inheritance.get(sender, frozenset()).isdisjoint(positional(command.args)):
            self._violation(f"{sender.name} sends {command.name} for a lock of the process that it was forked from")
        if command.name.endswith("/force_release"):
            for key in {section.visit.key for section in self.sections}:
                if store_key(key) == command.keys[0]:
                    self.forced(key)

    def data_lost(self) -> None:
        """The server was emptied or restored from a snapshot: holders detect it at their next renewal."""
        self.last_data_loss = self.now
        for section in self.sections:
            if not section.ended:
                section.excused = True

    @property
    def fences_fall(self) -> bool:
        """Whether the server has lost counters and its clock was set back: the documented limit."""
        return self.server_clock_moved and self.last_data_loss > 0

    def server_clock_set(self) -> None:
        self.server_clock_moved = True

    def forced(self, name: str) -> None:
        """An operator's forced release is sent, executed or answered."""
        for section in self.sections:
            if section.visit.key == name and not section.released:
                section.excused = True

    # Holders

    def begins(self, process: Process, visit: Any, *, several: bool = False) -> Section:
        self.scheduler.log("asks for %r, wait %s, expire %s", visit.key, visit.wait, visit.expire)
        section = Section(process, visit, self.now, waits=not several, several=several)
        self.sections.append(section)
        return section

    def entered(self, section: Section, grant: Grant) -> None:
        self._in_time(section)
        section.waits = False
        section.grant = grant
        section.fence = grant.fence or 0
        section.entered = self.now
        self.scheduler.log("holds %r with fence %s", section.visit.key, grant.fence)

    def inside(self, section: Section) -> None:
        """Check a holder after each of its steps."""

    def leaving(self, section: Section) -> None:
        section.over = True

    def released(self, section: Section) -> None:
        section.released = True
        self.scheduler.log("has released %r", section.visit.key)
        if section.reported:
            self._violation(f"{section} was reported as lost, and then its release succeeds")

    def refused(self, section: Section, error: LockNotAcquired | None) -> None:
        self.scheduler.log("is refused %r", section.visit.key)
        self._in_time(section)
        section.waits = False

    def _in_time(self, section: Section) -> None:
        """A wait ends by its deadline, plus the time of a request in flight and of a stopped process."""
        took = self.now - section.asked
        most = section.visit.wait * 1.01 + DEFAULT.socket_timeout + SLACK
        if took > most:
            stopped = sum(
                found.end - found.begin
                for found in self.world.faults.disturbances
                if found.kind == "stop" and found.process is section.process and found.end >= section.asked
            )
            disturbed = section.several and self.world.faults.between(section.asked, self.now)
            if took > most + stopped and not disturbed:
                self._violation(f"{section} waits {took:.3f} s, but no more than {section.visit.wait} were requested")
        if section.waits:
            self._check_waiter(section)

    def _check_waiter(self, section: Section) -> None:
        """Check, at the end of a wait, that the lock wasn't free for longer than allowed."""

    def failed(self, section: Section, error: LockBackendError) -> None:
        self.scheduler.log("fails: %s", error)
        section.waits = False
        if not self.world.faults.between(section.asked - 3.0, self.now):
            self._violation(f"{section} fails without a fault: {error!r}")

    def lost(self, section: Section, error: LockLost) -> None:
        self.scheduler.log("has lost %r: %s", section.visit.key, error)
        section.loss_known = True
        if not section.reported:
            self._renewal_was_kept(section)
        if not self._was_taken(section):
            self._violation(f"{section} gets {error!r}, and it was not taken")

    def _renewal_was_kept(self, section: Section) -> None:
        """A renewed lease ends only if a fault prevented its renewal."""
        if section.visit.expire is None and not section.excused:
            begin = self.now - 1.5 * self.world.lease - SLACK
            if not self.world.faults.between(begin, self.now):
                self._violation(f"{section} is lost, and nothing kept its renewal from the server")

    def _was_taken(self, section: Section) -> bool:
        """Whether the lock was lost: its lease has ended, or it was freed by another one."""
        if section.grant is not None and section.process.now() >= section.hold.deadline:
            return True
        return section.excused

    def interrupted(self, section: Section) -> None:
        self.scheduler.log("is interrupted")

    def ends(self, section: Section) -> None:
        section.waits = False
        section.over = True
        section.ended = True
        section.grant = None  # a referenced grant would be renewed

    def killed(self, process: Process) -> None:
        for section in self.sections:
            if section.process is process:
                section.waits = False
                section.over = True

    def forked(self, parent: Process, child: Process, grants: list[Grant]) -> None:
        self.killed(parent)
        self.inheritance[child] = {grant.hold.token for grant in grants}

    def inherited(self, child: Process, grant: Grant) -> None:
        if not grant.lost:
            self._violation(f"{child.name} treats a lock of the process that it was forked from as its own")

    # Events

    def receive(self, event: events.Event) -> None:
        if isinstance(event, events.Lost) and not self.fences_fall:
            process = self.scheduler.process
            for section in self.sections:
                if section.process is process and section.fence and section.fence == event.fence:
                    if section.released and not self._was_taken(section):
                        self._violation(f"{section} was released, and is reported as lost: {event.why}")
                    elif not section.loss_known and event.why == "taken" and not self._was_taken(section):
                        self._violation(f"{section} is reported as lost, and it was not taken")
                    elif section.reported:
                        self._violation(f"{section} is reported as lost twice")
                    elif not section.released:
                        self._renewal_was_kept(section)
                    section.loss_known = section.reported = True

    # End

    def check_end(self) -> None:
        if self.scheduler.problems:
            return
        for process in self.world.processes:
            if not process.dead:
                for actor in process.living:
                    if actor.name != "maintenance":
                        self._violation(f"{actor.name} of {process.name} never ends: {actor.doing}")


def store_key_of(section: Section) -> str:
    return store_key(section.visit.key)


def store_key(key: str) -> str:
    """The key of a lock in the store."""
    return f"lock:{{0}}:k:{key}"


def believes_to_hold(section: Section) -> bool:
    """Whether its process runs and holds the lock by its own knowledge."""
    if section.grant is None or section.over or section.excused or section.loss_known:
        return False
    process, hold = section.process, section.hold
    if process.dead or process.stopped:
        return False
    return hold.loss_reason is None and process.now() < hold.deadline

"""What must hold for locks, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired
from django_redis_locks.core import events
from django_redis_locks.core.tuning import DEFAULT

if TYPE_CHECKING:
    from django_redis_locks import Grant
    from django_redis_locks.core.commands import Command
    from django_redis_locks.core.hold import Hold
    from tests.simulation.lock_plans import Visit
    from tests.simulation.lock_world import LockWorld
    from tests.simulation.process import Process

PROMPT = 0.2
"""Seconds after which a waiter has a lock that another one freed, while nothing goes wrong: messages, a switch, and the
politeness of those who had it before."""

SLACK = 0.1
"""Seconds for round trips and switches."""

LONGEST_POLL = DEFAULT.max_poll_interval + DEFAULT.max_jitter + SLACK


@dataclass(eq=False)
class Section:
    """One visit to a lock, from the question to the release."""

    process: Process
    visit: Visit
    asked: float
    waits: bool = True
    grant: Grant | None = None
    fence: int = 0
    entered: float = 0.0
    over: bool = False
    """Its release has begun."""
    ended: bool = False
    excused: bool = False
    """The lock was taken away by force, or the server lost it."""
    released: bool = False
    told_lost: bool = False
    reported: bool = False
    """There was an event of its loss."""

    def __str__(self) -> str:
        fence = f", fence {self.fence}" if self.fence else ""
        return f"{self.process.name}'s {self.visit.key!r} asked at {self.asked:.4f}{fence}"

    @property
    def hold(self) -> Hold:
        assert self.grant is not None
        return self.grant.hold


@dataclass
class Free:
    """A time during which a lock was free. ``told``: a command freed it, of which the server told who was waiting."""

    begin: float
    end: float = inf
    told: bool = False


@dataclass
class Key:
    """What the server knows of one lock.

    Attributes:
        free: when it was free, so far; the last one may go on.
        thefts: when a lock was taken from its holder, or its lease ended.
        newest: the largest fence of a holder so far.
    """

    free: list[Free] = field(default_factory=lambda: [Free(0.0)])
    thefts: list[float] = field(default_factory=list)
    newest: int = 0
    token: str = ""
    ends: float = 0.0


class LockRules:
    """Judges one lock world while it runs, and at its end."""

    def __init__(self, world: LockWorld) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.sections: list[Section] = []
        self.keys: dict[str, Key] = {}
        self.last_data_loss = -inf
        self.server_clock_moved = False
        self.inheritance: dict[Process, set[str]] = {}
        """By forked child: the tokens of its parent, which it must not use."""
        world.server.observers.append(self._observe)

    @property
    def now(self) -> float:
        return self.scheduler.now

    def _broken(self, what: str) -> None:
        self.scheduler.broken(what)

    # What the server does.

    def key(self, name: str) -> Key:
        return self.keys.setdefault(name, Key())

    def _observe(self, command: Command[Any], reply: Any) -> None:
        """After each command: whose the lock is now."""
        sender = self.world.server.sender
        if sender is not None and not self.inheritance.get(sender, frozenset()).isdisjoint(command.args):
            self._broken(f"{sender.name} sends {command.name} for a lock of the process that it was forked from")
        if command.name == "lock/force_release":
            for key in {section.visit.key for section in self.sections}:
                if place_of(key) == command.keys[0]:
                    self.forced(key)
        for name in command.keys:
            if "}:k:" in name:
                self._look(name, told=command.name == "lock/release")

    def _look(self, name: str, told: bool = False) -> None:
        found = self.world.server.store.records.get(name)
        key = self.key(name)
        token, ends = ("", 0.0) if found is None or found.ends <= self.now else (found.token, found.ends)
        if token != key.token:
            if key.token and key.ends <= self.now:  # it has run out meanwhile
                key.thefts.append(key.ends)
                key.free.append(Free(key.ends))
            elif key.token and not token:
                key.free.append(Free(self.now, told=told))
            if token and key.free[-1].end == inf:
                key.free[-1].end = self.now
                self._nobody_waited(name, key.free[-1])
        key.token, key.ends = token, ends

    def _nobody_waited(self, name: str, free: Free) -> None:
        """A lock was free, and then somebody got it: nobody has waited for it any longer than the cap."""
        for section in self.sections:
            process = section.process
            if section.waits and not process.dead and not process.stopped and name_of(section) == name:
                self._waited(section, free)

    def _waited(self, section: Section, free: Free) -> None:
        begin, end = max(free.begin, section.asked), min(free.end, self.now)
        stolen = any(moment >= section.asked - LONGEST_POLL for moment in self.key(name_of(section)).thefts)
        longest = PROMPT if free.told and free.begin > section.asked and not stolen else LONGEST_POLL
        if end - begin > longest:
            excused = self.world.faults.between(section.asked - SLACK, end)
            if excused:
                longest = LONGEST_POLL + excused
            if end - begin > longest:
                self._broken(f"{section} waits although the lock is free since {begin:.4f}, for {end - begin:.3f} s")

    def data_lost(self) -> None:
        """The server was emptied or set back: holders find out when they renew."""
        self.last_data_loss = self.now
        for name in list(self.keys):
            self.key(name).thefts.append(self.now)
            self._look(name)
        for section in self.sections:
            if not section.ended:
                section.excused = True

    @property
    def fences_fall(self) -> bool:
        """The server has lost counters, and its clock was set back: the documented limit."""
        return self.server_clock_moved and self.last_data_loss > 0

    def server_clock_set(self) -> None:
        self.server_clock_moved = True

    def forced(self, name: str) -> None:
        """An operator's request is on its way, carried out or answered."""
        for section in self.sections:
            if section.visit.key == name and not section.released:
                section.excused = True
        self.key(place_of(name)).thefts.append(self.now)

    # What holders do.

    def begins(self, process: Process, visit: Visit) -> Section:
        self.scheduler.say("asks for %r, wait %s, expire %s", visit.key, visit.wait, visit.expire)
        section = Section(process, visit, self.now)
        self.sections.append(section)
        return section

    def entered(self, section: Section, grant: Grant) -> None:
        self._in_time(section)
        section.waits = False
        section.grant = grant
        section.fence = fence = grant.fence or 0
        section.entered = self.now
        self.scheduler.say("holds %r with fence %s", section.visit.key, grant.fence)
        key = self.key(name_of(section))
        if believes(section):
            for other in self.sections:
                if other is not section and other.visit.key == section.visit.key and believes(other):
                    self._broken(f"two hold the lock: {section} and {other}")
            if fence <= key.newest and not self.fences_fall:
                self._broken(f"{section} has a fence that isn't above {key.newest}")
            key.newest = fence

    def inside(self, section: Section) -> None:
        if believes(section) and section.fence < self.key(name_of(section)).newest:
            self._broken(f"{section} believes that it holds the lock, and its fence is an old one")

    def leaving(self, section: Section) -> None:
        section.over = True

    def released(self, section: Section) -> None:
        section.released = True
        self.scheduler.say("has released %r", section.visit.key)
        if section.reported:
            self._broken(f"{section} was reported as lost, and then its release succeeds")

    def refused(self, section: Section, error: LockNotAcquired | None) -> None:
        self.scheduler.say("is refused %r", section.visit.key)
        self._in_time(section)
        section.waits = False

    def _in_time(self, section: Section) -> None:
        """A wait ends by its deadline, with what a request in flight and a process that stands still add."""
        took = self.now - section.asked
        most = section.visit.wait * 1.01 + DEFAULT.socket_timeout + SLACK
        if took > most:
            stopped = sum(
                found.end - found.begin
                for found in self.world.faults.disturbances
                if found.kind == "stop" and found.process is section.process and found.end >= section.asked
            )
            if took > most + stopped:
                self._broken(f"{section} waits {took:.3f} s, and no more than {section.visit.wait} were asked for")
        if section.waits:
            for free in self.key(name_of(section)).free:
                if free.end >= section.asked:
                    self._waited(section, free)

    def failed(self, section: Section, error: LockBackendError) -> None:
        self.scheduler.say("fails: %s", error)
        section.waits = False
        if not self.world.faults.between(section.asked - 3.0, self.now):
            self._broken(f"{section} fails although all is well: {error!r}")

    def lost(self, section: Section, error: LockLost) -> None:
        self.scheduler.say("has lost %r: %s", section.visit.key, error)
        section.told_lost = True
        if not section.reported:
            self._renewal_was_kept(section)
        if not self._was_taken(section):
            self._broken(f"{section} is told {error!r}, and nobody took it")

    def _renewal_was_kept(self, section: Section) -> None:
        """A lease that is renewed ends only if something kept its renewal from the server."""
        if section.visit.expire is None and not section.excused:
            begin = self.now - 1.5 * self.world.lease - SLACK
            if not self.world.faults.between(begin, self.now):
                self._broken(f"{section} is lost, and nothing kept its renewal from the server")

    def _was_taken(self, section: Section) -> bool:
        self._look(name_of(section))
        key = self.key(name_of(section))
        if section.grant is not None and section.process.now() >= section.hold.deadline:
            return True
        asked = section.asked - DEFAULT.local_reuse_window  # a lock that was adopted was asked for before
        return section.excused or any(moment >= asked for moment in key.thefts)

    def interrupted(self, section: Section) -> None:
        self.scheduler.say("is struck")

    def ends(self, section: Section) -> None:
        section.waits = False
        section.over = True
        section.ended = True
        section.grant = None  # a grant that is kept is renewed

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
            self._broken(f"{child.name} takes a lock of the process that it was forked from for its own")

    # What the product says.

    def hear(self, event: events.Event) -> None:
        if isinstance(event, events.Lost) and not self.fences_fall:
            process = self.scheduler.process
            for section in self.sections:
                if section.process is process and section.fence and section.fence == event.fence:
                    if section.released and not self._was_taken(section):
                        self._broken(f"{section} was released, and is reported as lost: {event.why}")
                    elif not section.told_lost and event.why == "taken" and not self._was_taken(section):
                        self._broken(f"{section} is reported as lost, and nobody took it")
                    elif section.reported:
                        self._broken(f"{section} is reported as lost twice")
                    elif not section.released:
                        self._renewal_was_kept(section)
                    section.told_lost = section.reported = True

    # The end.

    def judge(self) -> None:
        if self.scheduler.problems:
            return
        for process in self.world.processes:
            if not process.dead:
                for actor in process.living:
                    if actor.name != "maintenance":
                        self._broken(f"{actor.name} of {process.name} never ends: {actor.doing}")
        for name in self.keys:
            found = self.world.server.store.find(name)
            if found is not None:
                self._broken(f"{name} stays locked with fence {found.fence}")


def name_of(section: Section) -> str:
    return place_of(section.visit.key)


def place_of(key: str) -> str:
    """The key of a lock in the store."""
    return f"lock:{{0}}:k:{key}"


def believes(section: Section) -> bool:
    """Its process runs, and takes the lock for its own."""
    if section.grant is None or section.over or section.excused or section.told_lost:
        return False
    process, hold = section.process, section.hold
    if process.dead or process.stopped:
        return False
    return hold.loss_reason is None and process.now() < hold.deadline

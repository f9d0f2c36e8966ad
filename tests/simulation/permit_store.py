"""What the steps of permits may do to a store: rules for each executed command, and for the time between two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from django_redis_locks.backends.memory.permits import Permits
from django_redis_locks.core.keys import waiters_of
from django_redis_locks.core.steps import positional
from django_redis_locks.core.steps.permits import AcquirePermits
from tests.simulation.visit_rules import LONGEST_POLL, PROMPT, SLACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_redis_locks.core.commands import Command
    from tests.simulation.permit_world import PermitWorld

GRANTING = {
    f"permits/{step}" for step in ("acquire", "release", "downgrade", "set_limit", "force_release", "unregister")
}
"""The steps that grant permits to waiters."""


class Held(NamedTuple):
    """A hold in the store."""

    permits: int
    fence: int
    ends: float
    unclaimed: bool


class Registered(NamedTuple):
    """A waiter in the store."""

    place: int
    address: str
    channel: str
    token: str
    limit: int
    permits: int

    @property
    def process(self) -> str:
        """The name of its process."""
        return self.channel.split(":")[-1].split(".")[0]

    @property
    def identity(self) -> tuple[str, str]:
        """Its process, and its number there, which no other waiter gets."""
        return self.process, self.address.split(" ")[1]


@dataclass
class View:
    """The permits of one key, as they were after a command.

    Attributes:
        line: the waiters in their order.
        limit: the smallest limit since something was held, by the requests of the holders.
        set_limit: the limit that was set for all clients, or None.
    """

    holds: dict[str, Held] = field(default_factory=dict)
    line: list[Registered] = field(default_factory=list)
    limit: float = inf
    set_limit: int | None = None

    def free(self, at: float, limit: int) -> float:
        """The free permits for a request with this limit, at a time after the command."""
        used = sum(hold.permits for hold in self.holds.values() if hold.ends > at)
        if self.set_limit is not None:
            return self.set_limit - used
        return (min(self.limit, limit) if used else limit) - used


class PermitStore:
    """Follows the keys of one permit world.

    Attributes:
        newest: the largest fence of a hold so far, by key.
        lost: the tokens whose lease has ended, or that were dropped by force.
    """

    def __init__(self, world: PermitWorld, locks: list[str]) -> None:
        self._world = world
        self.views = {lock: View() for lock in locks}
        self.newest = dict.fromkeys(locks, 0)
        self.lost: set[str] = set()
        self._places: dict[tuple[str, str], tuple[int, float]] = {}
        """The first place of each waiter, and since when: by its process, and by its number there."""
        self._granted: dict[str, float] = {}
        """When permits were granted to tokens that no request has claimed."""

    @property
    def _now(self) -> float:
        return self._world.scheduler.now

    def _violation(self, what: str) -> None:
        self._world.scheduler.violation(what)

    def look(self) -> None:
        """See the permits, after a change that no command has made."""
        for lock, view in self.views.items():
            self.lost |= view.holds.keys()
            self.views[lock] = self._read(lock)
            record = self._world.server.store.records.get(lock)
            if isinstance(record, Permits) and record.holds:
                self.views[lock].limit = record.limit
        self._granted.clear()
        self._places.clear()

    def forget_grants(self) -> None:
        """A process has died, perhaps with a grant that it will never adopt."""
        self._granted.clear()

    def _read(self, lock: str) -> View:
        store = self._world.server.store
        view = View(line=sorted(map(_registered, store.queues.get(waiters_of(lock), {}).items())))
        record = store.records.get(lock)
        if isinstance(record, Permits):
            view.set_limit = record.set_limit
            for token, hold in record.holds.items():
                if hold.ends > self._now:
                    view.holds[token] = Held(record.permits[token], hold.fence, hold.ends, hold.unclaimed)
        return view

    def alive(self, waiter: Registered) -> bool:
        return waiter.channel in self._world.server.store.inboxes

    def observe(self, command: Command[Any], reply: Any) -> None:
        """Check one command."""
        for lock, before in self.views.items():
            for token, hold in list(before.holds.items()):
                if hold.ends <= self._now:
                    self._ends(token, hold)
                    del before.holds[token]
            after = self._read(lock)
            names = set(positional(command.args))
            self._compare(before, after, command, names)
            self._check_grants(lock, before, after, command)
            self._check_places(before, after)
            if command.name in GRANTING and command.keys[0] == lock:
                self._check_line(lock, after, command)
            self.views[lock] = after
        if command.name == "permits/acquire":
            fence = reply if isinstance(reply, int) else reply[1] if reply[0] == 1 else 0
            hold = self.views[command.keys[0]].holds.get(command.args.token)
            if fence and hold is not None and hold.fence != fence:
                self._violation(f"{command.args.token} has fence {hold.fence}, and the reply says {fence}")

    def _ends(self, token: str, hold: Held) -> None:
        self.lost.add(token)
        granted = self._granted.pop(token, inf)
        if not self._world.faults.between(granted - LONGEST_POLL, hold.ends) and granted < inf:
            self._violation(f"a grant to {token} isn't adopted, and its lease has ended")

    def _compare(self, before: View, after: View, command: Command[Any], names: set[Any]) -> None:
        """[L35] [L36] A hold keeps its fence, and only a command with its token changes it."""
        for token, old in before.holds.items():
            own = token in names or any(isinstance(name, str) and token in name.split(" ") for name in names)
            own = own or (type(command.args).__name__ == "UnregisterPermits" and token in str(command.args))
            new = after.holds.get(token)
            if new is None:
                if command.name == "permits/force_release":
                    self.lost.add(token)
                elif not own or command.name not in {"permits/release", "permits/unregister"}:
                    self._violation(f"{command.name} takes the permits of {token}")
                self._granted.pop(token, None)
                continue
            if new.fence != old.fence:
                self._violation(f"the fence of {token} changes from {old.fence} to {new.fence}")
            if new.ends < old.ends:
                self._violation(f"{command.name} shortens the lease of {token}")
            if new.ends > old.ends and not own:
                self._violation(f"{command.name} extends the lease of {token}, which it doesn't name")
            if new.permits != old.permits and (command.name, own, new.permits) != ("permits/downgrade", True, 1):
                self._violation(f"{command.name} changes the permits of {token} to {new.permits}")
            if not new.unclaimed and token in self._granted:
                self.adopted(token)

    def adopted(self, token: str) -> None:
        """A live process adopts permits at once, or gives them back."""
        begin = self._granted.pop(token, inf)
        if self._now - begin > PROMPT and not self._world.faults.between(begin - LONGEST_POLL, self._now):
            self._violation(f"{token} isn't adopted, though it was granted {self._now - begin:.3f} s ago")

    def _check_grants(self, lock: str, before: View, after: View, command: Command[Any]) -> None:
        """[L34] [L37] Never more permits than the limit, and larger fences in the order of the line."""
        kept = [token for token in before.holds if token in after.holds]
        used, limit = sum(after.holds[token].permits for token in kept), before.limit if kept else inf
        new = {token: hold for token, hold in after.holds.items() if token not in before.holds}
        places = {waiter.token: waiter for waiter in before.line}
        for token, hold in sorted(new.items(), key=lambda item: item[1].fence):
            args = command.args
            if isinstance(args, AcquirePermits) and args.token == token:
                named, permits = args.limit, args.permits
            else:
                named, permits = places[token].limit, places[token].permits
                self._granted[token] = self._now
            used, limit = used + permits, min(limit, named)
            most = limit if after.set_limit is None else after.set_limit
            if used > most or hold.permits != permits:
                self._violation(f"more permits of {lock} are held than the limit of {most}: {used}, {after.holds}")
            if hold.fence <= self.newest[lock] and not self._world.rules.fences_fall:
                self._violation(f"{token} has fence {hold.fence}, which isn't above {self.newest[lock]}")
            self.newest[lock] = hold.fence
        granted = [places[token].place for token in sorted(new, key=lambda token: new[token].fence) if token in places]
        if granted != sorted(granted):
            self._violation(f"the permits of {lock} aren't granted in the order of the line")
        after.limit = limit

    def _check_places(self, before: View, after: View) -> None:
        """[L34] A waiter keeps its place, also if it is registered again; unless it has left the line, and the reply with
        its place was lost."""
        stays = {waiter.address: waiter.place for waiter in before.line}
        processes = {process.name: process for process in self._world.processes}
        for waiter in after.line:
            first, since = self._places.setdefault(waiter.identity, (waiter.place, self._now))
            if waiter.place > stays.get(waiter.address, first):
                disturbed = self._world.faults.between(since, since + SLACK, processes[waiter.process])
                if waiter.address in stays or not disturbed:
                    self._violation(f"{waiter.address} has lost its place")

    def _check_line(self, lock: str, view: View, command: Command[Any]) -> None:
        """[L33] [L34] After a step that grants permits, those of the first waiter aren't free."""
        args, own = command.args, ""
        if isinstance(args, AcquirePermits) and args.waiter is not None:
            own = args.waiter.address
            if not own:
                return  # a request without a registration may be before the first waiter
        # the sender lives, although its subscription may have been lost
        head = next((waiter for waiter in view.line if waiter.address == own or self.alive(waiter)), None)
        if head is not None and head.permits <= view.free(self._now, head.limit):
            self._violation(f"{head.address} waits for {lock} after {command.name}, although its permits are free")

    def _disturbed(self, waiter: Registered) -> bool:
        """Whether its process may have been unable to remove the waiter, which then stays until it was silent for too
        long."""
        processes = self._world.processes
        return any(
            process.name == waiter.process and self._world.faults.between(0.0, self._now, process)
            for process in processes
        )

    def check_end(self) -> None:
        for lock in self.views:
            view = self._read(lock)
            if view.holds:
                self._violation(f"permits of {lock} stay held: {view.holds}")
            for waiter in view.line:
                if self.alive(waiter) and not self._disturbed(waiter):
                    self._violation(f"{waiter.address} stays in the line of {lock}")
            for index in self._world.server.store.indexes.values():
                if index.get(lock, 0.0) > self._now:
                    self._violation(f"{lock} stays in an index")


def _registered(entry: tuple[str, int]) -> Registered:
    address, place = entry
    channel, _, token, asked, *_ = address.split(" ")
    _, _, limit, permits = asked.split("/")
    return Registered(place, address, channel, token, int(limit), int(permits))


def moments(view: View, begin: float, end: float) -> Iterator[float]:
    """The times at which a lease ended in a period, in their order."""
    yield from sorted({hold.ends for hold in view.holds.values() if begin < hold.ends <= end})

"""The rules for latches, which hold under all faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks.primitives.shared import latch_commands
from tests.simulation.visit_rules import LONGEST_POLL, PROMPT, SLACK

if TYPE_CHECKING:
    from django_redis_locks.core.commands import Command
    from tests.simulation.latch_world import LatchWorld
    from tests.simulation.process import Process


@dataclass(eq=False)
class Call:
    """One call of a latch's method. ``nonce`` identifies its requests."""

    process: Process
    method: str
    argument: Any
    begin: float
    nonce: str = ""
    ended: bool = False

    def __str__(self) -> str:
        return f"{self.process.name}'s {self.method}({self.argument}) of {self.begin:.4f}"


@dataclass
class Closed:
    """A period in which the latch was closed.

    Attributes:
        lapse: when it ends if it isn't changed.
        opened: it was counted down to 0.
        participants: those that have counted.
    """

    generation: int
    begin: float
    left: int
    lapse: float
    end: float = inf
    opened: bool = False
    participants: set[str] = field(default_factory=set)

    def covers(self, begin: float, end: float) -> bool:
        return self.begin <= begin and end < self.end


class LatchRules:
    """Checks the rules in one latch world, while it runs and at its end."""

    def __init__(self, world: LatchWorld) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.calls: list[Call] = []
        self.closed: list[Closed] = []
        self.effective: dict[str, float] = {}
        """The nonces of requests that changed the latch."""
        self.answered: set[str] = set()
        """The nonces of all requests to change it that the server has answered."""
        self.data_losses: list[float] = []
        self.deletions: list[float] = []
        self._starting: Call | None = None
        world.server.observers.append(self._observe)

    @property
    def now(self) -> float:
        return self.scheduler.now

    def _violation(self, what: str) -> None:
        self.scheduler.violation(what)

    def mint(self, nonce: str) -> str:
        """Assign a nonce to the call that has just begun."""
        if self._starting is not None:
            self._starting.nonce, self._starting = nonce, None
        return nonce

    # The server

    def _observe(self, command: Command[Any], reply: Any) -> None:
        """Compare the latch before and after each command."""
        self._compare(command)
        if command.name in {"latch/set", "latch/count_down"}:
            self.answered.add(command.args.nonce)

    def _compare(self, command: Command[Any]) -> None:
        before = self._current()
        generation = 0 if before is None else before.generation
        left = 0 if before is None else before.left
        self.look()
        after = self._current()
        if command.name == "latch/set" and after is not None and after.generation != generation:
            if before is not None:
                self._violation("a closed latch is set")
            self._changes(command.args.nonce)
        if command.name != "latch/count_down" or before is None:
            return
        now_left = after.left if after is not None and after.generation == generation else 0
        if now_left == left:
            return
        self._changes(command.args.nonce)
        if now_left != left - 1:
            self._violation(f"one call counts from {left} to {now_left}")
        participant = command.args.participant
        if participant and participant in before.participants:
            self._violation(f"{participant} counts twice")
        before.participants.add(participant)

    def _changes(self, nonce: str) -> None:
        if nonce in self.effective:
            self._violation(f"the request {nonce} counts twice")
        elif nonce in self.answered:
            self._violation(f"the request {nonce} was answered, and counts later")
        self.effective[nonce] = self.now

    def _current(self) -> Closed | None:
        """The period in which the latch is closed now."""
        if self.closed and self.closed[-1].end == inf:
            if self.closed[-1].lapse > self.now:
                return self.closed[-1]
            self.closed[-1].end = self.closed[-1].lapse
        return None

    def look(self) -> None:
        """Update the periods from the store."""
        current = self._current()
        found: Any = self.world.server.store.records.get(self.world.store_key)
        if found is not None and found.ends <= self.now:
            found = None
        if current is not None:
            if found is not None and found.fence == current.generation and found.left:
                current.left, current.lapse = found.left, found.ends
                return
            current.end = self.now
            current.opened = found is not None and found.first <= current.generation <= found.fence
        if found is not None and found.left:
            participants = set(found.participants)  # those that a snapshot had; else none
            self.closed.append(Closed(found.fence, self.now, found.left, found.ends, participants=participants))

    def deleted(self) -> None:
        """An operator has deleted the latch."""
        self.look()
        self.deletions.append(self.now)

    def data_lost(self) -> None:
        """The server was emptied, or restored from a snapshot: what was counted may be forgotten."""
        if (current := self._current()) is not None:
            current.end = self.now
        self.look()
        self.data_losses.append(self.now)
        self.effective.clear()
        self.answered.clear()

    def server_clock_set(self) -> None:
        """Generations grow all the same while the server has its data."""

    # Calls

    def begins(self, process: Process, method: str, argument: Any) -> Call:
        self.scheduler.log("%s(%s)", method, argument)
        call = self._starting = Call(process, method, argument, self.now)
        self.calls.append(call)
        return call

    def ends(self, call: Call) -> None:
        call.ended = True

    def killed(self, process: Process) -> None:
        for call in self.calls:
            call.ended = call.ended or call.process is process

    def failed(self, call: Call, error: Exception) -> None:
        self.scheduler.log("fails: %s", error)
        if not self._faults(call.begin - 3.0):
            self._violation(f"{call} fails without a fault: {error!r}")

    def returned(self, call: Call, result: Any) -> None:
        self.scheduler.log("%s returns %s", call.method, result)
        self._current()
        if call.method == "wait":
            self._waited(call, result)
        elif call.method == "count_down" and not self._may_count_nothing(call):
            self._violation(f"{call} returns {result} and has not counted")
        elif call.method == "try_set" and result and not self._lost_since(call) and call.nonce not in self.effective:
            self._violation(f"{call} returns True and has not set the latch")

    def _may_count_nothing(self, call: Call) -> bool:
        if call.nonce in self.effective or self._lost_since(call):
            return True
        period = self._covering(call.begin)
        return period is None or call.argument in period.participants

    def _waited(self, call: Call, result: bool) -> None:
        period = self._covering(call.begin)
        if result and period is not None:
            self._violation(f"{call} returns True and the latch was closed all the time")
        if result or self._lost_since(call):
            self.check_prompt(call)
            return
        if not any(closed.begin <= self.now and closed.end >= call.begin for closed in self.closed):
            self._violation(f"{call} returns False and the latch was never closed")
        self.check_prompt(call)

    def lost(self, call: Call, error: Exception) -> None:
        self.scheduler.log("lost: %s", error)
        self._current()
        if self._lost_since(call):
            return
        if not any(map(partial(self._may_be_lost, call), self.closed)):
            self._violation(f"{call} gets {error!r}, and no latch ended")
        self.check_prompt(call)

    def _may_be_lost(self, call: Call, closed: Closed) -> bool:
        """Whether a latch ended during the call, and wasn't open before that; or was open, and the waiter was late: it
        asked after the latch had been deleted, or its lifetime was over."""
        if not call.begin <= closed.end <= self.now:
            return False
        late = self.now >= closed.end + self.world.lifetime or any(moment >= closed.end for moment in self.deletions)
        return late or not closed.opened

    def check_prompt(self, call: Call) -> None:
        """A waiter that found the latch closed goes on when the latch opens or ends."""
        self._current()
        found = [closed for closed in self.closed if closed.begin <= call.begin < closed.end]
        if not found or found[0].end > self.now or call.process.stopped:
            return
        end, opened = found[0].end, found[0].opened
        if end - call.begin < SLACK or self._faults(call.begin - SLACK, end):
            return  # perhaps its first request came later
        most = PROMPT if opened else LONGEST_POLL
        if self.now - end > most:
            excused = self._faults(end - LONGEST_POLL)
            if self.now - end > LONGEST_POLL + excused or not excused:
                self._violation(f"{call} waits although the latch isn't closed any more since {end:.4f}")

    def _covering(self, begin: float) -> Closed | None:
        """The period in which the latch was closed from ``begin`` until now."""
        return next((closed for closed in self.closed if closed.covers(begin, self.now)), None)

    def _lost_since(self, call: Call) -> bool:
        return any(moment >= call.begin for moment in self.data_losses)

    def _faults(self, begin: float, end: float | None = None) -> float:
        return self.world.faults.between(begin, self.now if end is None else end)

    # End

    def check_end(self) -> None:
        for call in self.calls:
            if not call.ended and not call.process.dead and not self.scheduler.problems:
                self._violation(f"{call} never ends")
        for process in self.world.processes:
            if not process.dead and len(process.engine._queues):
                self._violation(f"{process.name} has a queue without a waiter")


def minting(rules: LatchRules) -> Any:
    """The replacement of the function that mints nonces."""
    real = latch_commands._mint_nonce
    return lambda: rules.mint(real())

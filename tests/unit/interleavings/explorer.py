"""Every interleaving of a few processes, breadth first, so that the first failure found is the shortest story of it.

Time stands still while anything can move; then it goes on to the next timer. What may go wrong is counted: a scenario
says how many faults a path may have, and of which kinds.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from .moments import still
from .moves import Move, Moves, Scenario, State
from .rules import Rules
from .telling import Teller


class Failure(AssertionError):
    """A rule is broken; the message is the story."""


@dataclass(frozen=True)
class Found:
    states: int
    ends: int
    complete: bool


def explore(scenario: Scenario) -> Found:
    """Visit every state.

    Raises:
        Failure: a rule is broken.
    """
    with still():
        return _Explorer(scenario).explore()


class _Explorer:
    def __init__(self, scenario: Scenario) -> None:
        self._moves = Moves(scenario)
        self._rules = Rules(self._moves)
        self._most = scenario.most
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._parents = array("l")
        # Steps on which nothing goes wrong, as pairs of numbers:
        self._froms = array("l")
        self._tos = array("l")

    def explore(self) -> Found:
        ends = bytearray()
        self._visit(self._moves.begin, -1)
        at = 0
        while at < len(self._states) <= self._most:
            state = self._states[at]
            ends.append(1)
            for move in self._moves.of(state):
                number = self._visit(self._same(move.after)[0], at)
                if not move.fault:
                    ends[at] = 0
                    self._froms.append(at)
                    self._tos.append(number)
                    if move.what[0] == "time" and (why := self._rules.forgotten(state, move.what[1])):
                        self._fail(why, at)
            if ends[at] and (why := self._rules.unfinished(state)):
                self._fail(why, at)
            at += 1
        complete = at == len(self._states)
        if complete:
            self._all_end(bytearray(ends))
        return Found(len(self._states), sum(ends), complete)

    def _visit(self, state: State, parent: int) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._parents.append(parent)
            if why := self._rules.broken(state):
                self._fail(why, number)
        return number

    def _same(self, state: State) -> tuple[State, tuple[int, ...]]:
        """Processes with the same plans may as well be numbered otherwise: one state for all such, and the order."""
        machines = self._moves.machines
        each = range(len(machines))
        order = sorted(each, key=lambda p: (machines.index(machines[p]), state.processes[p], state.messages[p]))
        if order == list(each):
            return state, tuple(order)
        news = {old: new for new, old in enumerate(order)}
        copies = sorted(copy._replace(sender=news[copy.sender]) for copy in state.copies)
        same = state._replace(
            store=self._moves.store.renamed(state.store, tuple(order)),
            processes=tuple(state.processes[p] for p in order),
            messages=tuple(state.messages[p] for p in order),
            copies=tuple(copies),
        )
        return same, tuple(order)

    def _all_end(self, ending: bytearray) -> None:
        """From everywhere there is a way to the end on which nothing goes wrong."""
        more = True
        while more:
            more = False
            for before, after in zip(reversed(self._froms), reversed(self._tos), strict=True):
                if ending[after] and not ending[before]:
                    ending[before] = more = True
        if (stuck := ending.find(0)) >= 0:
            self._fail("it never ends", stuck)

    def _fail(self, why: str, number: int) -> None:
        path: list[int] = []
        while number > 0:
            path.append(number)
            number = self._parents[number]
        teller = Teller(len(self._moves.machines))
        state = self._states[0]
        lines = [why + ":"]
        for after in reversed(path):
            move, order = self._move(state, self._states[after])
            lines.append("  " + teller.tell(move))
            teller.reorder(order)
            state = self._states[after]
        raise Failure("\n".join(lines))

    def _move(self, state: State, after: State) -> tuple[Move, tuple[int, ...]]:
        for move in self._moves.of(state):
            same, order = self._same(move.after)
            if same == after:
                return move, order
        raise LookupError

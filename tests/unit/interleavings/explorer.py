"""An explicit-state explorer of the interleavings of a few processes. It searches breadth first, so the first failure
has the shortest trace.

Time stands still while a process can make a step; then it advances to the next timer. A scenario sets how many faults a
path may contain, and of which kinds.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from .environment import deterministic_environment
from .rules import Rules
from .trace import TraceFormatter
from .transitions import Scenario, State, Transition, Transitions, order_of


class Failure(AssertionError):
    """A rule is violated; the message contains the trace."""


@dataclass(frozen=True)
class Exploration:
    states: int
    final_states: int
    complete: bool


def explore(scenario: Scenario) -> Exploration:
    """Visit every state.

    Raises:
        Failure: a rule is broken.
    """
    with deterministic_environment():
        return _Explorer(scenario).explore()


class _Explorer:
    def __init__(self, scenario: Scenario) -> None:
        self._transitions = Transitions(scenario)
        self._rules = Rules(self._transitions)
        self._max_states = scenario.max_states
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._parents = array("l")
        # Transitions without a fault, as pairs of state numbers:
        self._edge_sources = array("l")
        self._edge_targets = array("l")

    def explore(self) -> Exploration:
        final_states = bytearray()
        self._visit(self._transitions.initial, -1)
        at = 0
        while at < len(self._states) <= self._max_states:
            state = self._states[at]
            final_states.append(1)
            for transition in self._transitions.from_state(state):
                number = self._visit(self._canonical(transition.after)[0], at)
                if not transition.fault:
                    final_states[at] = 0
                    self._edge_sources.append(at)
                    self._edge_targets.append(number)
                    if transition.event[0] == "time" and (
                        why := self._rules.wait_violation(state, transition.event[1])
                    ):
                        self._fail(why, at)
            if final_states[at] and (why := self._rules.final_violation(state)):
                self._fail(why, at)
            at += 1
        complete = at == len(self._states)
        if complete:
            self._check_termination(bytearray(final_states))
        return Exploration(len(self._states), sum(final_states), complete)

    def _visit(self, state: State, parent: int) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._parents.append(parent)
            if why := self._rules.invariant_violation(state):
                self._fail(why, number)
        return number

    def _canonical(self, state: State) -> tuple[State, tuple[int, ...]]:
        """The representative of all states that differ in the numbering of processes with equal plans, and its
        numbering."""
        process_states = self._transitions.process_states
        each = range(len(process_states))
        order = sorted(
            each, key=lambda p: (process_states.index(process_states[p]), state.processes[p], state.messages[p])
        )
        if order == list(each):
            return state, tuple(order)
        new_numbers = {old: new for new, old in enumerate(order)}
        late_requests = [
            late_request._replace(sender=new_numbers[late_request.sender]) for late_request in state.late_requests
        ]
        canonical = state._replace(
            store=self._transitions.store.renumbered(state.store, tuple(order)),
            processes=tuple(state.processes[p] for p in order),
            messages=tuple(state.messages[p] for p in order),
            late_requests=tuple(sorted(late_requests, key=order_of)),
        )
        return canonical, tuple(order)

    def _check_termination(self, can_end: bytearray) -> None:
        """From every state there must be a path without further faults to a final state."""
        changed = True
        while changed:
            changed = False
            for before, after in zip(reversed(self._edge_sources), reversed(self._edge_targets), strict=True):
                if can_end[after] and not can_end[before]:
                    can_end[before] = changed = True
        if (stuck := can_end.find(0)) >= 0:
            self._fail("it never ends", stuck)

    def _fail(self, why: str, number: int) -> None:
        path: list[int] = []
        while number > 0:
            path.append(number)
            number = self._parents[number]
        formatter = TraceFormatter(len(self._transitions.process_states))
        state = self._states[0]
        lines = [why + ":"]
        for after in reversed(path):
            transition, order = self._transition_between(state, self._states[after])
            lines.append("  " + formatter.format(transition))
            formatter.reorder(order)
            state = self._states[after]
        raise Failure("\n".join(lines))

    def _transition_between(self, state: State, after: State) -> tuple[Transition, tuple[int, ...]]:
        for transition in self._transitions.from_state(state):
            canonical, order = self._canonical(transition.after)
            if canonical == after:
                return transition, order
        raise LookupError

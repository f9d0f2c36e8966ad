"""The rules that hold in every state, whenever time passes, and in every final state."""

from __future__ import annotations

from django_redis_locks.primitives.shared.rwlock_steps import ALL_PERMITS

from .process import PROCESS
from .process_view import ProcessView
from .transitions import DEAD, State, Transitions

ORPHAN = "the lock has no holder, and only the end of its lease frees it"


class Rules:
    def __init__(self, transitions: Transitions) -> None:
        self._process_states = transitions.process_states
        self._store = transitions.store
        self._max_hand_overs = transitions.scenario.max_hand_overs
        plans = [plan for plans in transitions.scenario.plans for plan in plans]
        two_sides = any(plan.kind in ("read", "write") for plan in plans)
        self._limit = ALL_PERMITS if two_sides else min(plan.limit for plan in plans)

    def _alive(self, state: State) -> list[tuple[int, ProcessView]]:
        return [(p, self._process_states[p].views[n]) for p, n in enumerate(state.processes) if n != DEAD]

    def invariant_violation(self, state: State) -> str:
        """Check one state. A hold counts from its grant to the beginning of its release, or to the end of its lease, by
        its holder's own clock."""
        if state.overtaken:
            return "a waiter that has waited longer is overtaken"
        holders = 0
        for _, view in self._alive(state):
            holders += view.holders
            if view.violation:
                return view.violation
        if state.hand_overs_in_a_row > self._max_hand_overs:
            return "the lock stays within a process although another process waits"
        return "two contenders hold the lock at once" if holders > self._limit else ""

    def wait_violation(self, state: State, length: float) -> str:
        """Check a state in which no step is possible for ``length`` seconds: no contender may sleep for a free lock, or
        wait for a lock without a holder that no cleanup will delete."""
        if state.delay_allowed:
            return ""
        alive = self._alive(state)
        if self._store.available[state.store]:
            wait = any(timer <= length for _, view in alive for timer in view.wait_timers)
            if wait and length > 0.01:
                return "a contender sleeps although the lock is free"
        known = {known.replace(PROCESS, str(p)) for p, view in alive for known in view.tokens}
        return "" if self._store.tokens[state.store] <= known else ORPHAN

    def final_violation(self, state: State) -> str:
        """Check a final state."""
        for _, view in self._alive(state):
            if not view.finished:
                return "a contender is stuck"
            if view.has_queues:
                return "an empty queue is kept"
        if self._store.tokens[state.store] and not state.delay_allowed:
            return ORPHAN
        left = self._store.queues[state.store] and not state.stale_entry_allowed
        return "a process that no longer waits stays in the wait queue" if left else ""

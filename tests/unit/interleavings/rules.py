"""What must hold, in every state, whenever time goes on, and at the end."""

from __future__ import annotations

from django_redis_locks.core.tuning import DEFAULT

from .moves import DEAD, Moves, State
from .process import ME
from .sights import Sight

ORPHAN = "nobody has the lock, and only the end of its lease frees it"


class Rules:
    def __init__(self, moves: Moves) -> None:
        self._machines = moves.machines
        self._store = moves.store
        self._passes = moves.scenario.passes

    def _alive(self, state: State) -> list[tuple[int, Sight]]:
        return [(p, self._machines[p].sights[n]) for p, n in enumerate(state.processes) if n != DEAD]

    def broken(self, state: State) -> str:
        """What must never be. A hold counts from its grant to the beginning of its release, or to the end of its lease,
        by its holder's own clock."""
        inside = 0
        for _, sight in self._alive(state):
            inside += sight.inside
            if sight.complaint:
                return sight.complaint
        if state.passed > self._passes:
            return "the lock stays within a process although another one waits"
        return "two are inside at once" if inside > 1 else ""

    def forgotten(self, state: State, length: float) -> str:
        """What must not be when nothing can move before so many seconds have passed: that somebody sleeps until then
        although the lock is free, or waits for a lock that nobody has and nobody will delete."""
        if state.excused:
            return ""
        token = self._store.tokens[state.store]
        alive = self._alive(state)
        if token is None:
            wait = any(timer <= length for _, sight in alive for timer in sight.sleepers)
            return "somebody sleeps although the lock is free" if wait and length > 2 * DEFAULT.yield_time else ""
        known = {known.replace(ME, str(p)) for p, sight in alive for known in sight.tokens}
        return "" if token in known else ORPHAN

    def unfinished(self, state: State) -> str:
        """What must not be at the end."""
        for _, sight in self._alive(state):
            if not sight.over:
                return "somebody is stuck"
            if sight.queued:
                return "an empty queue is kept"
        if self._store.tokens[state.store] is not None and not state.excused:
            return ORPHAN
        left = self._store.queues[state.store] and not state.lingering
        return "a process that doesn't wait any more stays in line" if left else ""

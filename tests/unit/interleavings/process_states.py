"""Processes as state machines: a state is a number, and each transition is computed once, by the real code.

A process is affected by other processes only through its inputs, so the state of several processes is a tuple of such
numbers, and most transitions are looked up. Programs (generators) can't be copied: a process in an earlier state is
rebuilt by replaying the inputs that first led to that state.
"""

from __future__ import annotations

from typing import Any

from .fingerprints import Fingerprinter
from .plans import Plan
from .process import Input, Process
from .process_view import ProcessView, sight


class ProcessStates:
    """One state machine for all processes with the same plans."""

    CACHED_PROCESSES = 3000
    """Number of process objects kept for reuse: the next step often begins in the state where the last one ended."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self._plans = plans
        self._numbers: dict[Any, int] = {}
        self._origins: list[tuple[int, Input]] = []
        self._steps: dict[tuple[int, Input], int] = {}
        self._cache: dict[int, Process] = {}
        self.views: list[ProcessView] = []
        self._number(Process(plans), (-1, ()))

    def step(self, state: int, input: Input) -> int:
        after = self._steps.get((state, input))
        if after is None:
            process = self._cache.pop(state, None) or self._replay(state)
            process.apply(input)
            after = self._steps[state, input] = self._number(process, (state, input))
        return after

    def _replay(self, state: int) -> Process:
        inputs = []
        while state:
            state, input = self._origins[state]
            inputs.append(input)
        process = Process(self._plans)
        for input in reversed(inputs):
            process.apply(input)
        return process

    def _number(self, process: Process, origin: tuple[int, Input]) -> int:
        fingerprinter = Fingerprinter(process.now)
        queues = process.engine._queues
        cleanups = [
            (max(process.now, due), command, max(process.now, end)) for due, _, command, _, end in process.cleanups()
        ]
        contended = {lock_id: until for lock_id, until in queues._contended_until.items() if until >= process.now}
        first_waiters = queues._first_waiters
        flags = process.backend.listening, process.disconnected, process.cleanup_abandoned, process.violation
        fingerprint = fingerprinter.of((process.contenders, queues._queues, first_waiters, contended, cleanups, flags))
        number = self._numbers.setdefault(fingerprint, len(self._numbers))
        if number == len(self.views):
            self._origins.append(origin)
            self.views.append(sight(process, fingerprinter.last_arrival))
        self._cache[number] = process
        if len(self._cache) > self.CACHED_PROCESSES:
            del self._cache[next(iter(self._cache))]
        return number

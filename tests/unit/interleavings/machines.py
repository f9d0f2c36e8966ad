"""Processes as machines: a state is a number, and what an input leads to is found out once, by the real code.

A process meets others only through its inputs, so the state of several is a tuple of such numbers, and most steps are
looked up. Programs can't be copied; a process in a state that is needed again is made anew, by the inputs that led
there first.
"""

from __future__ import annotations

from typing import Any

from .plans import Plan
from .process import Input, Process
from .sameness import Shaper
from .sights import Sight, sight


class Processes:
    """All processes with the same plans are one machine."""

    LIVE = 3000
    """So many processes are kept as they are, since the next step often begins where the last one ended."""

    def __init__(self, plans: tuple[Plan, ...]) -> None:
        self._plans = plans
        self._numbers: dict[Any, int] = {}
        self._origins: list[tuple[int, Input]] = []
        self._steps: dict[tuple[int, Input], int] = {}
        self._live: dict[int, Process] = {}
        self.sights: list[Sight] = []
        self._number(Process(plans), (-1, ()))

    def step(self, state: int, input: Input) -> int:
        after = self._steps.get((state, input))
        if after is None:
            process = self._live.pop(state, None) or self._made(state)
            process.take(input)
            after = self._steps[state, input] = self._number(process, (state, input))
        return after

    def _made(self, state: int) -> Process:
        inputs = []
        while state:
            state, input = self._origins[state]
            inputs.append(input)
        process = Process(self._plans)
        for input in reversed(inputs):
            process.take(input)
        return process

    def _number(self, process: Process, origin: tuple[int, Input]) -> int:
        shaper = Shaper(process.now)
        queues = process.engine._queues
        cleanups = [
            (max(process.now, due), command, max(process.now, end)) for due, _, command, _, end in process.cleanups()
        ]
        polite = {lock_id: until for lock_id, until in queues._yield_until.items() if until > process.now}
        hot = {lock_id: until for lock_id, until in queues._contended_until.items() if until >= process.now}
        asking = queues._first_waiters
        rest = process.backend.listening, process.deaf, process.gave_up, process.complaint
        shape = shaper.of((process.contenders, queues._queues, asking, polite, hot, cleanups, rest))
        number = self._numbers.setdefault(shape, len(self._numbers))
        if number == len(self.sights):
            self._origins.append(origin)
            self.sights.append(sight(process, shaper.last))
        self._live[number] = process
        if len(self._live) > self.LIVE:
            del self._live[next(iter(self._live))]
        return number

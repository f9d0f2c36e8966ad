"""Many tasks in one event loop, each with a key of its own."""

from __future__ import annotations

import asyncio
import os
import time

from ..adapters.base import TaskAdapter
from ..probe import Probe
from ..stats import Figures

WARM = 0.1  # seconds


class Scenario:
    def __init__(self, make: type[TaskAdapter], url: str, *, tasks: int = 1) -> None:
        self.tasks = tasks
        self.probe = Probe(url)
        self.loop = asyncio.new_event_loop()
        self.adapter = make(url)
        self.loop.run_until_complete(self.adapter.start())
        self._run(WARM)

    def measure(self, *, seconds: float = 0.0, tasks: int = 0) -> Figures:
        """Measure time if ``seconds`` is given; otherwise count connections and commands."""
        self.tasks = tasks or self.tasks
        if seconds:
            cpu = self.probe.cpu() + time.process_time()
            done, took = self._run(seconds)
            cpu = self.probe.cpu() + time.process_time() - cpu
            return {"us": took / done * 1e6, "pairs": done / took, "cpu": cpu / done * 1e6}
        before = self.probe.counters()
        done, _ = self._run(WARM)
        spent = self.probe.counters().since(before)
        return {"connections": spent.clients, "commands": spent.commands / done}

    def _run(self, seconds: float) -> tuple[int, float]:
        """Return the number of acquire-and-release pairs, and the elapsed time."""

        async def one(key: str) -> int:
            acquire, release = self.adapter.acquire, self.adapter.release
            done = 0
            while not done or time.perf_counter() < end:
                await release(await acquire(key))
                done += 1
            return done

        async def all_tasks() -> list[int]:
            return await asyncio.gather(*(one(f"bench:{os.getpid()}:{number}") for number in range(self.tasks)))

        start = time.perf_counter()
        end = start + seconds
        done = sum(self.loop.run_until_complete(all_tasks()))
        return done, time.perf_counter() - start

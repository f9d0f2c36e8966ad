"""One thread or task acquires and releases a lock, on any store: only its own time and CPU time are measured."""

from __future__ import annotations

import asyncio
import os
import time

from ..adapters.base import Adapter, TaskAdapter
from ..stats import Figures

BATCH = 10
WARM = 100


class Scenario:
    def __init__(self, make: type[Adapter | TaskAdapter], url: str) -> None:
        self.key = f"bench:{os.getpid()}"
        self.adapter = make(url)
        self.loop = asyncio.new_event_loop()
        if isinstance(self.adapter, TaskAdapter):
            self.loop.run_until_complete(self.adapter.start())
        self._repeat(WARM)

    def measure(self, *, seconds: float) -> Figures:
        done, client = 0, time.process_time()
        start = now = time.perf_counter()
        while now < start + seconds:
            self._repeat(BATCH)
            done += BATCH
            now = time.perf_counter()
        client = time.process_time() - client
        return {"us": (now - start) / done * 1e6, "client": client / done * 1e6}

    def _repeat(self, number: int) -> None:
        if isinstance(self.adapter, TaskAdapter):
            self.loop.run_until_complete(self._pairs_of_task(self.adapter, number))
        else:
            for _ in range(number):
                self.adapter.release(self.adapter.acquire(self.key))

    async def _pairs_of_task(self, adapter: TaskAdapter, number: int) -> None:
        for _ in range(number):
            await adapter.release(await adapter.acquire(self.key))

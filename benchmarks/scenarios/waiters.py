"""Hundreds of waiters for one held lock: their cost while they wait, and the time until all have acquired it."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections import Counter
from typing import Any

from ..adapters.base import Adapter, TaskAdapter
from ..probe import Probe
from ..stats import SECOND, Acquisition, overlaps

KEY = "bench:waiters"
SETTLE = 1.0  # seconds until all of them wait
IDLE = 2.0  # seconds in which the cost of waiting is measured
TIMEOUT = 5.0  # seconds to wait for the last acquisition


class Scenario:
    def __init__(self, make: type[Any], url: str, *, workers: int) -> None:
        self.watch = Watch(Probe(url))
        self.waiters = (TaskWaiters if issubclass(make, TaskAdapter) else ThreadWaiters)(make(url), workers)

    def measure(self, *, settle: float = SETTLE, idle: float = IDLE) -> dict[str, Any]:
        waiters, watch = self.waiters, self.watch
        waiters.settle, waiters.watched = settle, idle
        waiters.run(watch)
        spent = watch.probe.counters().since(watch.before)
        acquired = max(1, len(waiters.acquisitions))
        return {
            **watch.idle,
            "ms": self._drained(),
            "acquired": len(waiters.acquisitions),
            "errors": sum(waiters.errors.values()),
            "kinds": dict(waiters.errors),
            "requests": spent.requests / acquired,
            "scripts": spent.scripts / acquired,
            "commands": spent.commands / acquired,
            "overlaps": overlaps(waiters.acquisitions),
        }

    def _drained(self) -> float:
        """Milliseconds from the first release to the last acquisition; infinite if a waiter didn't acquire."""
        acquisitions = self.waiters.acquisitions
        if len(acquisitions) < self.waiters.workers:
            return math.inf
        return (max(one.acquired for one in acquisitions) - self.watch.released_at) / SECOND * 1000


class Watch:
    """Measures the server and this process while all wait, and the time of the holder's release."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.before = probe.counters()
        self.idle: dict[str, float] = {}
        self.released_at = 0

    def begin(self) -> None:
        self.before, self._cpu, self._clock = self.probe.counters(), time.process_time(), time.monotonic()

    def end(self) -> None:
        seconds = time.monotonic() - self._clock
        cpu = time.process_time() - self._cpu
        waiting = self.probe.counters().since(self.before)
        self.idle = {
            "connections": waiting.clients,
            "idle_requests": waiting.requests / seconds,
            "idle_cpu": 100 * cpu / seconds,
        }
        self.before = self.probe.counters()
        self.released_at = time.monotonic_ns()


class Waiters:
    def __init__(self, adapter: Any, workers: int) -> None:
        self.adapter = adapter
        self.workers = workers
        self.settle, self.watched = SETTLE, IDLE
        self.acquisitions: list[Acquisition] = []
        self.errors: Counter[str] = Counter()

    def run(self, watch: Watch) -> None:
        raise NotImplementedError


class ThreadWaiters(Waiters):
    adapter: Adapter

    def run(self, watch: Watch) -> None:
        self.adapter.prepare(KEY)
        held = self.adapter.acquire(KEY)
        threads = [threading.Thread(target=self._wait, args=(one,), daemon=True) for one in range(self.workers)]
        for thread in threads:
            thread.start()
        time.sleep(self.settle)
        watch.begin()
        time.sleep(self.watched)
        watch.end()
        try:
            self.adapter.release(held)
        except Exception as error:  # noqa: BLE001 - waiters may have taken every connection
            self.errors[f"release: {type(error).__name__}"] += 1
        deadline = time.monotonic() + TIMEOUT
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wait(self, worker: int) -> None:
        requested = time.monotonic_ns()
        try:
            held = self.adapter.acquire(KEY)
            acquired = time.monotonic_ns()
            released = time.monotonic_ns()
            self.adapter.release(held)
            self.acquisitions.append(Acquisition(requested, acquired, released, worker))
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            self.errors[type(error).__name__] += 1


class TaskWaiters(Waiters):
    adapter: TaskAdapter

    def run(self, watch: Watch) -> None:
        asyncio.new_event_loop().run_until_complete(self._run(watch))

    async def _run(self, watch: Watch) -> None:
        await self.adapter.start()
        held = await self.adapter.acquire(KEY)
        tasks = [
            asyncio.create_task(
                self._wait(worker), context=contextvars.Context()
            )  # without the holder's context, and so its grant
            for worker in range(self.workers)
        ]
        await asyncio.sleep(self.settle)
        watch.begin()
        await asyncio.sleep(self.watched)
        watch.end()
        try:
            await self.adapter.release(held)
        except Exception as error:  # noqa: BLE001 - waiters may have taken every connection
            self.errors[f"release: {type(error).__name__}"] += 1
        await asyncio.wait(tasks, timeout=TIMEOUT)

    async def _wait(self, worker: int) -> None:
        requested = time.monotonic_ns()
        try:
            held = await self.adapter.acquire(KEY)
            acquired = time.monotonic_ns()
            released = time.monotonic_ns()
            await self.adapter.release(held)
            self.acquisitions.append(Acquisition(requested, acquired, released, worker))
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            self.errors[type(error).__name__] += 1

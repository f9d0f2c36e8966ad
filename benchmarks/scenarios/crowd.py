"""Hundreds wait for one lock that somebody holds: what they cost meanwhile, and how soon all are through."""

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
from ..stats import SECOND, Pass, overlaps

KEY = "bench:crowd"
SETTLE = 1.0  # seconds until everybody waits
IDLE = 2.0  # seconds that are watched
PATIENCE = 5.0  # seconds after which we don't wait for the rest


class Scenario:
    def __init__(self, make: type[Any], url: str, *, workers: int) -> None:
        self.watch = Watch(Probe(url))
        self.crowd = (TaskCrowd if issubclass(make, TaskAdapter) else ThreadCrowd)(make(url), workers)

    def measure(self, *, settle: float = SETTLE, idle: float = IDLE) -> dict[str, Any]:
        crowd, watch = self.crowd, self.watch
        crowd.settle, crowd.watched = settle, idle
        crowd.run(watch)
        spent = watch.probe.counters().since(watch.before)
        passed = max(1, len(crowd.passes))
        return {
            **watch.idle,
            "ms": self._drained(),
            "through": len(crowd.passes),
            "errors": sum(crowd.errors.values()),
            "kinds": dict(crowd.errors),
            "requests": spent.requests / passed,
            "scripts": spent.scripts / passed,
            "commands": spent.commands / passed,
            "overlaps": overlaps(crowd.passes),
        }

    def _drained(self) -> float:
        """From the first release to the last acquisition, if all came through."""
        passes = self.crowd.passes
        if len(passes) < self.crowd.workers:
            return math.inf
        return (max(one.acquired for one in passes) - self.watch.freed) / SECOND * 1000


class Watch:
    """Looks at the server and at this process while all wait, and tells when the holder lets go."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.before = probe.counters()
        self.idle: dict[str, float] = {}
        self.freed = 0

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
        self.freed = time.monotonic_ns()


class Crowd:
    def __init__(self, adapter: Any, workers: int) -> None:
        self.adapter = adapter
        self.workers = workers
        self.settle, self.watched = SETTLE, IDLE
        self.passes: list[Pass] = []
        self.errors: Counter[str] = Counter()

    def run(self, watch: Watch) -> None:
        raise NotImplementedError


class ThreadCrowd(Crowd):
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
        deadline = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wait(self, worker: int) -> None:
        asked = time.monotonic_ns()
        try:
            held = self.adapter.acquire(KEY)
            acquired = time.monotonic_ns()
            released = time.monotonic_ns()
            self.adapter.release(held)
            self.passes.append(Pass(asked, acquired, released, worker))
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            self.errors[type(error).__name__] += 1


class TaskCrowd(Crowd):
    adapter: TaskAdapter

    def run(self, watch: Watch) -> None:
        asyncio.new_event_loop().run_until_complete(self._run(watch))

    async def _run(self, watch: Watch) -> None:
        await self.adapter.start()
        held = await self.adapter.acquire(KEY)
        tasks = [
            asyncio.create_task(
                self._wait(worker), context=contextvars.Context()
            )  # strangers, not the holder's children
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
        await asyncio.wait(tasks, timeout=PATIENCE)

    async def _wait(self, worker: int) -> None:
        asked = time.monotonic_ns()
        try:
            held = await self.adapter.acquire(KEY)
            acquired = time.monotonic_ns()
            released = time.monotonic_ns()
            await self.adapter.release(held)
            self.passes.append(Pass(asked, acquired, released, worker))
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            self.errors[type(error).__name__] += 1

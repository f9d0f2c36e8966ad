"""Many callers request a missing value at the same moment; loading it takes 100 ms."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from ..adapters.base import Cache, TaskCache
from ..probe import Probe
from ..stats import percentile

LOADER_SECONDS = 0.1  # seconds
TIMEOUT = 10.0  # seconds to wait for the last caller
NO_ANSWER = "no answer"
VALUE = {"name": "Coffee grinder", "sold": 40}


class Outcome(NamedTuple):
    """The outcome of one stampede in one process."""

    loads: int
    waits: list[float]  # ms, of callers that got the value
    errors: Counter[str]


class Scenario:
    """The processes are forked before the adapter is made: each has its own."""

    def __init__(self, make: type[Any], url: str, *, processes: int, callers: int) -> None:
        context = multiprocessing.get_context("fork")
        gc.freeze()
        self.probe = Probe(url)
        self.keys: Iterator[str] = (f"bench:stampede:{number}" for number in itertools.count())
        self.pipes: list[Connection[Any, Any]] = []
        self.callers = processes * callers
        for number in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=run_process, args=(make, url, callers, number, theirs), daemon=True).start()
            failed = ours.recv()  # one after the other, so that no connection is refused at the start
            if failed:
                raise RuntimeError(failed)
            self.pipes.append(ours)

    def measure(self, *, times: int) -> dict[str, Any]:
        """Run stampedes. The loads are those of the worst one; waits, errors and requests are those of all."""
        before = self.probe.counters()
        stampedes: list[list[Outcome]] = []
        while len(stampedes) < times and not any(NO_ANSWER in one.errors for one in itertools.chain(*stampedes)):
            stampedes.append(self._stampede(next(self.keys)))
        spent = self.probe.counters().since(before)
        outcomes = list(itertools.chain(*stampedes))
        waits = [wait for one in outcomes for wait in one.waits]
        errors: Counter[str] = sum((one.errors for one in outcomes), Counter())
        gets = len(stampedes) * self.callers
        return {
            "loads": max(sum(one.loads for one in stampede) for stampede in stampedes),
            "errors": sum(errors.values()) / len(stampedes),
            "kinds": dict(errors),
            "p50": percentile(waits, 50),
            "p99": percentile(waits, 99),
            "commands": spent.commands / gets,
            "requests": spent.requests / gets,
            "connections": spent.clients,
        }

    def _stampede(self, key: str) -> list[Outcome]:
        for pipe in self.pipes:
            pipe.send(key)
        return [pipe.recv() for pipe in self.pipes]


def run_process(make: type[Any], url: str, callers: int, number: int, pipe: Connection[Any, Any]) -> None:
    """Run stampedes in this process. Each caller has loaded a value before, to open its connection."""
    try:
        callers_of_process = (TaskCallers if issubclass(make, TaskCache) else ThreadCallers)(
            make(url), callers, f"bench:warm:{number}"
        )
    except Exception as error:  # noqa: BLE001 - the parent process raises it
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    with contextlib.suppress(EOFError):  # the parent process has ended
        while True:
            pipe.send(callers_of_process.run(pipe.recv()))


class Callers:
    def __init__(self, callers: int) -> None:
        self.callers = callers
        self.loads = 0
        self.waits: list[float] = []
        self.errors: Counter[str] = Counter()

    def begin(self) -> None:
        self.loads, self.waits, self.errors = 0, [], Counter()

    def end(self) -> Outcome:
        missing = self.callers - len(self.waits) - sum(self.errors.values())
        if missing:
            self.errors[NO_ANSWER] += missing
        return Outcome(self.loads, self.waits, self.errors)

    def note(self, value: object, requested: int) -> None:
        if value == VALUE:
            self.waits.append((time.monotonic_ns() - requested) / 1e6)
        else:
            self.errors["another value"] += 1


class ThreadCallers(Callers):
    """The threads are reused for each stampede, as in a server."""

    def __init__(self, adapter: Cache, callers: int, warm: str) -> None:
        super().__init__(callers)
        self.adapter = adapter
        self.key = warm
        self.adapter.load(warm, lambda: VALUE)  # a library that can't work fails here
        self.start, self.over = threading.Barrier(callers + 1), threading.Barrier(callers + 1)
        for _ in range(callers):
            warmed = threading.Event()
            threading.Thread(target=self._live, args=(warm, warmed), daemon=True).start()
            warmed.wait(TIMEOUT)

    def run(self, key: str) -> Outcome:
        self.begin()
        self.key = key
        self.start.wait(TIMEOUT)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.over.wait(TIMEOUT)
        return self.end()

    def _live(self, warm: str, warmed: threading.Event) -> None:
        with contextlib.suppress(Exception):
            self.adapter.load(warm, lambda: VALUE)
        warmed.set()
        while True:
            self.start.wait()
            requested = time.monotonic_ns()
            try:
                self.note(self.adapter.load(self.key, self._load), requested)
            except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
                self.errors[type(error).__name__] += 1
            self.over.wait()

    def _load(self) -> Any:
        self.loads += 1
        time.sleep(LOADER_SECONDS)
        return VALUE


class TaskCallers(Callers):
    def __init__(self, adapter: TaskCache, callers: int, warm: str) -> None:
        super().__init__(callers)
        self.adapter = adapter
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._warm(warm))

    async def _warm(self, key: str) -> None:
        async def load() -> Any:
            return VALUE

        await self.adapter.start()
        await self.adapter.load(key, load)

    def run(self, key: str) -> Outcome:
        self.begin()
        self.loop.run_until_complete(self._run(key))
        return self.end()

    async def _run(self, key: str) -> None:
        start = asyncio.Event()
        tasks = [asyncio.create_task(self._call(key, start)) for _ in range(self.callers)]
        await asyncio.sleep(0)  # all tasks have started
        start.set()
        await asyncio.wait(tasks, timeout=TIMEOUT)

    async def _call(self, key: str, start: asyncio.Event) -> None:
        await start.wait()
        requested = time.monotonic_ns()
        try:
            self.note(await self.adapter.load(key, self._load), requested)
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            self.errors[type(error).__name__] += 1

    async def _load(self) -> Any:
        self.loads += 1
        await asyncio.sleep(LOADER_SECONDS)
        return VALUE

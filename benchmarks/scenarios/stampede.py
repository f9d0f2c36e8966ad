"""Everybody asks for a value that isn't there, at the same moment, and loading it takes its time."""

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

LOADER = 0.1  # seconds
PATIENCE = 10.0  # seconds after which we don't wait for the rest
LOST = "no answer"
VALUE = {"name": "Coffee grinder", "sold": 40}


class Told(NamedTuple):
    """What came of one key in one process."""

    loads: int
    waits: list[float]  # ms, of those who got the value
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
            context.Process(target=live, args=(make, url, callers, number, theirs), daemon=True).start()
            failed = ours.recv()  # one after the other, so that nobody's connections are refused before it begins
            if failed:
                raise RuntimeError(failed)
            self.pipes.append(ours)

    def measure(self, *, times: int) -> dict[str, Any]:
        """The loads are those of the worst of so many stampedes; the waits are those of all of them."""
        before = self.probe.counters()
        stampedes: list[list[Told]] = []
        while len(stampedes) < times and not any(LOST in one.errors for one in itertools.chain(*stampedes)):
            stampedes.append(self._stampede(next(self.keys)))
        spent = self.probe.counters().since(before)
        told = list(itertools.chain(*stampedes))
        waits = [wait for one in told for wait in one.waits]
        errors: Counter[str] = sum((one.errors for one in told), Counter())
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

    def _stampede(self, key: str) -> list[Told]:
        for pipe in self.pipes:
            pipe.send(key)
        return [pipe.recv() for pipe in self.pipes]


def live(make: type[Any], url: str, callers: int, number: int, pipe: Connection[Any, Any]) -> None:
    """The life of a process. Everybody in it has loaded something before."""
    try:
        crowd = (TaskCrowd if issubclass(make, TaskCache) else ThreadCrowd)(make(url), callers, f"bench:warm:{number}")
    except Exception as error:  # noqa: BLE001 - told where it is shown
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    with contextlib.suppress(EOFError):  # the end of who asks us
        while True:
            pipe.send(crowd.run(pipe.recv()))


class Crowd:
    def __init__(self, callers: int) -> None:
        self.callers = callers
        self.loads = 0
        self.waits: list[float] = []
        self.errors: Counter[str] = Counter()

    def begin(self) -> None:
        self.loads, self.waits, self.errors = 0, [], Counter()

    def end(self) -> Told:
        missing = self.callers - len(self.waits) - sum(self.errors.values())
        if missing:
            self.errors[LOST] += missing
        return Told(self.loads, self.waits, self.errors)

    def note(self, value: object, asked: int) -> None:
        if value == VALUE:
            self.waits.append((time.monotonic_ns() - asked) / 1e6)
        else:
            self.errors["another value"] += 1


class ThreadCrowd(Crowd):
    """The threads live on from stampede to stampede, as a server's do."""

    def __init__(self, adapter: Cache, callers: int, warm: str) -> None:
        super().__init__(callers)
        self.adapter = adapter
        self.key = warm
        self.adapter.load(warm, lambda: VALUE)  # what can't work at all fails here
        self.start, self.over = threading.Barrier(callers + 1), threading.Barrier(callers + 1)
        for _ in range(callers):
            warmed = threading.Event()
            threading.Thread(target=self._live, args=(warm, warmed), daemon=True).start()
            warmed.wait(PATIENCE)

    def run(self, key: str) -> Told:
        self.begin()
        self.key = key
        self.start.wait(PATIENCE)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.over.wait(PATIENCE)
        return self.end()

    def _live(self, warm: str, warmed: threading.Event) -> None:
        with contextlib.suppress(Exception):
            self.adapter.load(warm, lambda: VALUE)
        warmed.set()
        while True:
            self.start.wait()
            asked = time.monotonic_ns()
            try:
                self.note(self.adapter.load(self.key, self._load), asked)
            except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
                self.errors[type(error).__name__] += 1
            self.over.wait()

    def _load(self) -> Any:
        self.loads += 1
        time.sleep(LOADER)
        return VALUE


class TaskCrowd(Crowd):
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

    def run(self, key: str) -> Told:
        self.begin()
        self.loop.run_until_complete(self._run(key))
        return self.end()

    async def _run(self, key: str) -> None:
        start = asyncio.Event()
        tasks = [asyncio.create_task(self._call(key, start)) for _ in range(self.callers)]
        await asyncio.sleep(0)  # all are there
        start.set()
        await asyncio.wait(tasks, timeout=PATIENCE)

    async def _call(self, key: str, start: asyncio.Event) -> None:
        await start.wait()
        asked = time.monotonic_ns()
        try:
            self.note(await self.adapter.load(key, self._load), asked)
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            self.errors[type(error).__name__] += 1

    async def _load(self) -> Any:
        self.loads += 1
        await asyncio.sleep(LOADER)
        return VALUE

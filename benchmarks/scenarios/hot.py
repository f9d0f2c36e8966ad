"""One hot lock: so many threads or processes want it all the time."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from array import array
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import SECOND, Pass, contention

KEY = "bench:hot"
LEAD = SECOND // 5  # between the order and the start, so that everybody is there


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, workers: int, processes: bool, section: float) -> None:
        self.crew = (Processes if processes else Threads)(make, url, workers, section)
        self.workers = workers
        self.probe = Probe(url)

    def measure(self, *, seconds: float, workers: int = 0) -> dict[str, Any]:
        """With all workers, or with the first ones only."""
        workers = workers or self.workers
        before = self.probe.counters()
        start = time.monotonic_ns() + LEAD
        end = start + int(seconds * SECOND)
        passes, errors = self.crew.run(workers, start, end)
        spent = self.probe.counters().since(before)
        figures: dict[str, Any] = contention(passes, workers=workers, start=start, end=end)
        return {
            **figures,
            "requests": spent.requests / max(1, len(passes)),
            "commands": spent.commands / max(1, len(passes)),
            "connections": spent.clients,
            "errors": sum(errors.values()),
            "kinds": dict(errors),
        }


def work(adapter: Adapter, start: int, end: int, section: float) -> tuple[array[int], Counter[str]]:
    """The turns of one worker: asked, acquired, released, flat."""
    clock, acquire, release = time.monotonic_ns, adapter.acquire, adapter.release
    turns, errors = array("q"), Counter[str]()
    while clock() < start:
        time.sleep(0.001)
    while (asked := clock()) < end:
        try:
            held = acquire(KEY)
            acquired = clock()
            if section:
                time.sleep(section)
            released = clock()
            release(held)
            turns.extend((asked, acquired, released))
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            errors[type(error).__name__] += 1
    return turns, errors


def collect(results: list[tuple[array[int], Counter[str]]]) -> tuple[list[Pass], Counter[str]]:
    passes, errors = [], Counter[str]()
    for worker, (turns, failed) in enumerate(results):
        flat = iter(turns)
        passes += [Pass(*one, worker) for one in zip(flat, flat, flat, strict=True)]
        errors += failed
    return passes, errors


class Threads:
    def __init__(self, make: type[Adapter], url: str, workers: int, section: float) -> None:
        self.adapter = make(url)
        self.adapter.prepare(KEY)
        self.adapter.release(self.adapter.acquire(KEY))
        self.section = section

    def run(self, workers: int, start: int, end: int) -> tuple[list[Pass], Counter[str]]:
        results: list[Any] = [None] * workers

        def one(worker: int) -> None:
            results[worker] = work(self.adapter, start, end, self.section)

        threads = [threading.Thread(target=one, args=(worker,), daemon=True) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return collect(results)


class Processes:
    """Forked before the adapter is made: each has its own, and starting them takes no time."""

    def __init__(self, make: type[Adapter], url: str, workers: int, section: float) -> None:
        context = multiprocessing.get_context("fork")
        gc.freeze()
        self.pipes: list[Connection[Any, Any]] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._live, args=(make, url, section, theirs, number == 0), daemon=True)
            process.start()
            ours.recv()  # one after the other: the first prepares
            self.pipes.append(ours)

    @staticmethod
    def _live(make: type[Adapter], url: str, section: float, pipe: Connection[Any, Any], first: bool) -> None:
        adapter = make(url)
        if first:
            adapter.prepare(KEY)
        adapter.release(adapter.acquire(KEY))
        pipe.send("ready")
        while True:
            start, end = pipe.recv()
            pipe.send(work(adapter, start, end, section))

    def run(self, workers: int, start: int, end: int) -> tuple[list[Pass], Counter[str]]:
        pipes = self.pipes[:workers]
        for pipe in pipes:
            pipe.send((start, end))
        return collect([pipe.recv() for pipe in pipes])

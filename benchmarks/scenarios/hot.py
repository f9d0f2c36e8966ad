"""One hot lock: threads or processes that acquire and release it all the time."""

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
from ..stats import SECOND, Acquisition, contention

KEY = "bench:hot"
LEAD = SECOND // 5  # between the request and the first acquire, so that all workers are ready
WARM = SECOND // 10  # of contention that isn't counted: libraries open connections for it


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, workers: int, processes: bool, section: float) -> None:
        self.contenders = (Processes if processes else Threads)(make, url, workers, section)
        self.workers = workers
        self.probe = Probe(url)

    def measure(self, *, seconds: float, waiting: int = 0) -> dict[str, Any]:
        """waiting: how many workers contend, besides the one that holds the lock; 0 for all."""
        workers = waiting + 1 if waiting else self.workers
        before = self.probe.counters()
        begin = time.monotonic_ns() + LEAD
        start = begin + WARM
        end = start + int(seconds * SECOND)
        acquisitions, errors = self.contenders.run(workers, begin, end)
        spent = self.probe.counters().since(before)
        figures: dict[str, Any] = contention(acquisitions, workers=workers, start=start, end=end)
        return {
            **figures,
            "requests": spent.requests / max(1, len(acquisitions)),
            "commands": spent.commands / max(1, len(acquisitions)),
            "connections": spent.clients,
            "errors": sum(errors.values()),
            "kinds": dict(errors),
        }


def work(adapter: Adapter, start: int, end: int, section: float) -> tuple[array[int], Counter[str]]:
    """Acquire and release until the end. Return the times requested, acquired and released in a flat array, and
    errors."""
    clock, acquire, release = time.monotonic_ns, adapter.acquire, adapter.release
    times, errors = array("q"), Counter[str]()
    while clock() < start:
        time.sleep(0.001)
    while (requested := clock()) < end:
        try:
            held = acquire(KEY)
            acquired = clock()
            if section:
                time.sleep(section)
            released = clock()
            release(held)
            times.extend((requested, acquired, released))
        except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
            errors[type(error).__name__] += 1
    return times, errors


def collect(results: list[tuple[array[int], Counter[str]]]) -> tuple[list[Acquisition], Counter[str]]:
    acquisitions, errors = [], Counter[str]()
    for worker, (times, failed) in enumerate(results):
        flat = iter(times)
        acquisitions += [Acquisition(*one, worker) for one in zip(flat, flat, flat, strict=True)]
        errors += failed
    return acquisitions, errors


class Threads:
    def __init__(self, make: type[Adapter], url: str, workers: int, section: float) -> None:
        self.adapter = make(url)
        self.adapter.prepare(KEY)
        self.adapter.release(self.adapter.acquire(KEY))
        self.section = section

    def run(self, workers: int, start: int, end: int) -> tuple[list[Acquisition], Counter[str]]:
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
    """Forked before the adapter is made: each has its own, and starting them is quick."""

    def __init__(self, make: type[Adapter], url: str, workers: int, section: float) -> None:
        context = multiprocessing.get_context("fork")
        gc.freeze()
        self.pipes: list[Connection[Any, Any]] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._live, args=(make, url, section, theirs, number == 0), daemon=True)
            process.start()
            ours.recv()  # one after the other: the first one prepares the lock
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

    def run(self, workers: int, start: int, end: int) -> tuple[list[Acquisition], Counter[str]]:
        pipes = self.pipes[:workers]
        for pipe in pipes:
            pipe.send((start, end))
        return collect([pipe.recv() for pipe in pipes])

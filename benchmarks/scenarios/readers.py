"""Threads of several processes that read one value all the time, each read between an acquire and a release."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import redis

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import SECOND

KEY = "bench:readers"
VALUE = "bench:value"
LEAD = SECOND // 5  # between the request and the first read, so that all threads are ready
WARM = SECOND // 5  # of reads that aren't counted: threads open their connections


class Reads(NamedTuple):
    counted: int  # between the end of the warm-up and the end
    total: int
    errors: Counter[str]


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, processes: int, threads: int) -> None:
        context = multiprocessing.get_context("fork")
        gc.freeze()
        self.pipes: list[Connection[Any, Any]] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=_live, args=(make, url, threads, theirs), daemon=True).start()
            ours.recv()
            self.pipes.append(ours)
        self.probe = Probe(url)
        self.probe.ask(b"SET", VALUE.encode(), b"1")

    def measure(self, *, seconds: float) -> dict[str, Any]:
        before = self.probe.counters()
        begin = time.monotonic_ns() + LEAD
        for pipe in self.pipes:
            pipe.send((begin, begin + WARM, begin + WARM + int(seconds * SECOND)))
        results: list[Reads] = [pipe.recv() for pipe in self.pipes]
        spent = self.probe.counters().since(before)
        errors = sum((one.errors for one in results), Counter[str]())
        return {
            "reads": sum(one.counted for one in results) / seconds,
            "requests": spent.requests / max(1, sum(one.total for one in results)),
            "connections": spent.clients,
            "errors": errors.total(),
            "kinds": dict(errors),
        }


def _live(make: type[Adapter], url: str, threads: int, pipe: Connection[Any, Any]) -> None:
    adapter, client = make(url), redis.Redis.from_url(url)
    adapter.release(adapter.acquire(KEY))
    pipe.send("ready")
    while True:
        pipe.send(_read_in_threads(adapter, client, threads, *pipe.recv()))


def _read_in_threads(adapter: Adapter, client: Any, threads: int, begin: int, start: int, end: int) -> Reads:
    found: list[Reads] = []

    def read() -> None:
        clock, acquire, release, get = time.monotonic_ns, adapter.acquire, adapter.release, client.get
        counted, total, errors = 0, 0, Counter[str]()
        while clock() < begin:
            time.sleep(0.001)
        while (now := clock()) < end:
            try:
                held = acquire(KEY)
                get(VALUE)
                release(held)
            except Exception as error:  # noqa: BLE001 - what a library raises is one of its figures
                errors[type(error).__name__] += 1
            total += 1
            counted += now >= start
        found.append(Reads(counted, total, errors))

    workers = [threading.Thread(target=read) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    errors = sum((one.errors for one in found), Counter[str]())
    return Reads(sum(one.counted for one in found), sum(one.total for one in found), errors)

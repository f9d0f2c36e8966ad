"""One waiter in another process: the time from the release to its acquisition."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from typing import Any

from ..adapters.base import Adapter
from ..probe import Probe

KEY = "bench:wake"
SHORTEST, LONGEST = 0.005, 0.105  # seconds of a hold: random, over more than the usual polling interval


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, counted: bool = True) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        context.Process(target=self._wait, args=(make, url, theirs), daemon=True).start()
        self.pipe.recv()
        self.adapter = make(url)
        self.adapter.prepare(KEY)
        self.probe = Probe(url) if counted else None
        self.random = random.Random(1)  # noqa: S311 - the same holds for every library
        self._cycle(0.01)

    @staticmethod
    def _wait(make: type[Adapter], url: str, pipe: Connection[Any, Any]) -> None:
        adapter = make(url)
        pipe.send("ready")
        while True:
            pipe.recv()
            pipe.send("waiting")
            held = adapter.acquire(KEY)
            acquired = time.monotonic_ns()
            adapter.release(held)
            pipe.send(acquired)

    def measure(self, *, seconds: float) -> dict[str, Any]:
        before = self.probe.counters() if self.probe else None
        end = time.monotonic() + seconds
        samples: list[float] = []
        while not samples or time.monotonic() < end:
            samples.append(self._cycle(self.random.uniform(SHORTEST, LONGEST)))
        figures: dict[str, Any] = {"samples": samples, "overlaps": sum(sample < 0 for sample in samples)}
        if self.probe and before:
            figures["requests"] = self.probe.counters().since(before).requests / (2 * len(samples))
        return figures

    def _cycle(self, seconds: float) -> float:
        """Hold for this many seconds. Return the ms from the release to the waiter's acquisition."""
        held = self.adapter.acquire(KEY)
        self.pipe.send("go")
        self.pipe.recv()
        time.sleep(seconds)
        released = time.monotonic_ns()
        self.adapter.release(held)
        acquired: int = self.pipe.recv()
        return (acquired - released) / 1e6

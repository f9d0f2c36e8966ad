"""One lock, one thread, no contention: acquire and release in a loop."""

from __future__ import annotations

import cProfile
import math
import os
import threading
import time

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import Figures

WARM = 200
COUNTED = 500
BATCH = 10
FEW = 50
ADAPTER_CALLS = 2  # the adapter's acquire and release, which don't belong to the library


class Scenario:
    def __init__(self, make: type[Adapter], url: str) -> None:
        self.key = f"bench:{os.getpid()}"  # other workers warm up at the same time
        self.adapter = make(url)
        self.probe = Probe(url)
        self.occupied = 0
        self._pairs(WARM)

    def measure(self, *, seconds: float = 0.0, own: int = 0, others: int = 0, length: int = 0) -> Figures:
        """Measure time if ``seconds`` is given; otherwise count calls and requests.

        own, others: the number of other locks that this thread, or other threads, hold. length: of the key.
        """
        if own > self.occupied:
            self._occupy(self.occupied, own)
        while others > self.occupied:  # in threads with a few locks each, as in a server
            thread = threading.Thread(target=self._occupy, args=(self.occupied, min(others, self.occupied + FEW)))
            thread.start()
            thread.join()
        if length:
            self.key = f"{os.getpid()}".rjust(length, "x")[-length:]
        return self._time(seconds) if seconds else self._count()

    def _occupy(self, first: int, end: int) -> None:
        for number in range(first, end):
            self.adapter.occupy(f"bench:{os.getpid()}:{number}")
        self.occupied = end

    def _pairs(self, number: int) -> None:
        acquire, release, key = self.adapter.acquire, self.adapter.release, self.key
        for _ in range(number):
            release(acquire(key))

    def _time(self, seconds: float) -> Figures:
        """Elapsed time, and CPU time of client and server, which other load on the machine doesn't change."""
        done = 0
        server, client = self.probe.cpu(), time.process_time()
        start = now = time.perf_counter()
        while now < start + seconds:
            self._pairs(BATCH)
            done += BATCH
            now = time.perf_counter()
        client = time.process_time() - client
        server = self.probe.cpu() - server
        return {
            "us": (now - start) / done * 1e6,
            "cpu": (client + server) / done * 1e6,
            "client": client / done * 1e6,
            "server": server / done * 1e6,
        }

    def _count(self) -> Figures:
        before = self.probe.counters()
        self._pairs(COUNTED)
        spent = self.probe.counters().since(before)
        profile = cProfile.Profile()
        profile.enable()
        self._pairs(COUNTED)
        profile.disable()
        # not pstats: it counts functions with the same name and position, such as those of dataclasses, only once
        calls = sum(entry.callcount for entry in profile.getstats()) / COUNTED
        return {
            "calls": math.floor(calls) - ADAPTER_CALLS,  # the fraction is the call that ends the profiler
            "requests": spent.requests / COUNTED,
            "commands": spent.commands / COUNTED,
            "connections": spent.clients,
        }

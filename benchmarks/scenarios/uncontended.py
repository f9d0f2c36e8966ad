"""One lock, one thread, no contention: acquire and release in a loop."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import Figures
from .operations import counts_per_operation, time_per_operation

WARM = 200
FEW = 50
ADAPTER_CALLS = 2  # the adapter's acquire and release, which don't belong to the library


class Scenario:
    def __init__(self, make: type[Adapter], url: str) -> None:
        self.keys: Iterator[str] = itertools.repeat(f"bench:{os.getpid()}")  # other workers warm up at the same time
        self.adapter = make(url)
        self.probe = Probe(url)
        self.occupied = 0
        self.seen = 0
        self._pairs(WARM)

    def measure(
        self, *, seconds: float = 0.0, own: int = 0, others: int = 0, length: int = 0, seen: int = 0
    ) -> Figures:
        """Measure time if ``seconds`` is given; otherwise count calls and requests.

        own, others: the number of other locks that this thread, or other threads, hold. length: of the key. seen: the
        number of keys that were acquired and released before; each pair then has a new key.
        """
        if own > self.occupied:
            self._occupy(self.occupied, own)
        while others > self.occupied:  # in threads with a few locks each, as in a server
            thread = threading.Thread(target=self._occupy, args=(self.occupied, min(others, self.occupied + FEW)))
            thread.start()
            thread.join()
        if length:
            self.keys = itertools.repeat(f"{os.getpid()}".rjust(length, "x")[-length:])
        if seen:
            self._see(seen)
        if seconds:
            return time_per_operation(self._pairs, seconds, self.probe)
        counts = counts_per_operation(self._pairs, self.probe)
        return {**counts, "calls": counts["calls"] - ADAPTER_CALLS}

    def _occupy(self, first: int, end: int) -> None:
        for number in range(first, end):
            self.adapter.occupy(f"bench:{os.getpid()}:{number}")
        self.occupied = end

    def _pairs(self, number: int) -> None:
        acquire, release = self.adapter.acquire, self.adapter.release
        for key in itertools.islice(self.keys, number):
            release(acquire(key))

    def _see(self, number: int) -> None:
        if not self.seen:
            self.keys = (f"bench:{os.getpid()}:{each}" for each in itertools.count())
        self._pairs(max(0, number - self.seen))
        self.seen = max(number, self.seen)

"""Submission of jobs that no worker runs: different ones, or the same one each time."""

from __future__ import annotations

import itertools
import time

from ..adapters.base import Adapter
from ..stats import Figures

WARM = 100
BATCH = 10


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, same: bool) -> None:
        self.adapter = make(url)
        self.keys = itertools.repeat("job") if same else (f"job {number}" for number in itertools.count())
        for key in itertools.islice(self.keys, WARM):
            self.adapter.acquire(key)

    def measure(self, *, seconds: float) -> Figures:
        """Elapsed time and CPU time of the client, per submission."""
        submit = self.adapter.acquire
        done = 0
        client = time.process_time()
        start = now = time.perf_counter()
        while now < start + seconds:
            for key in itertools.islice(self.keys, BATCH):
                submit(key)
            done += BATCH
            now = time.perf_counter()
        return {"us": (now - start) / done * 1e6, "client": (time.process_time() - client) / done * 1e6}

"""The time of one operation, repeated."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..probe import Probe
from ..stats import Figures

BATCH = 10


def per_operation(repeat: Callable[[int], None], seconds: float, probe: Probe) -> Figures:
    """Repeat for this many seconds. Return µs per operation: elapsed time, and CPU time of client and server.

    Other load on the machine doesn't change the CPU time.
    """
    done = 0
    server, client = probe.cpu(), time.process_time()
    start = now = time.perf_counter()
    while now < start + seconds:
        repeat(BATCH)
        done += BATCH
        now = time.perf_counter()
    client = time.process_time() - client
    server = probe.cpu() - server
    return {
        "us": (now - start) / done * 1e6,
        "cpu": (client + server) / done * 1e6,
        "client": client / done * 1e6,
        "server": server / done * 1e6,
    }

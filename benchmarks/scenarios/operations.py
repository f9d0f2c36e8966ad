"""The cost of one operation: its time, and what carries no noise, its calls and requests."""

from __future__ import annotations

import cProfile
import math
import time
from collections.abc import Callable

from ..probe import Probe
from ..stats import Figures

BATCH = 10
COUNTED = 500


def time_per_operation(repeat: Callable[[int], None], seconds: float, probe: Probe) -> Figures:
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


def counts_per_operation(repeat: Callable[[int], None], probe: Probe) -> Figures:
    """Return the Python and C calls of this thread, requests and commands per operation, and the connections."""
    before = probe.counters()
    repeat(COUNTED)
    spent = probe.counters().since(before)
    profile = cProfile.Profile()
    profile.enable()
    repeat(COUNTED)
    profile.disable()
    # not pstats: it counts functions with the same name and position, such as those of dataclasses, only once
    calls = sum(entry.callcount for entry in profile.getstats()) / COUNTED
    return {
        "calls": math.floor(calls),  # the fraction is the call that ends the profiler
        "requests": spent.requests / COUNTED,
        "commands": spent.commands / COUNTED,
        "connections": spent.clients,
    }

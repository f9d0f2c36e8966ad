"""Many locks held and renewed by one process: the cost of a renewal, and how many locks are lost."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import Figures


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, lease: float) -> None:
        self.probe = Probe(url)
        self.adapter = make(url)
        self.lease = lease
        self.held: list[Any] = []

    def measure(self, *, seconds: float, locks: int) -> Figures:
        while len(self.held) < locks:
            self.held.append(self.adapter.hold(f"bench:{len(self.held):05d}", self.lease))
        before, cpu = self.probe.counters(), time.process_time()
        time.sleep(seconds)
        cpu = time.process_time() - cpu
        spent = self.probe.counters().since(before)
        threads = threading.active_count() - 1
        renewals = spent.expiries
        return {
            "threads": threads,
            "connections": spent.clients,
            "renewals": renewals / len(self.held),
            "cpu_us": cpu / max(1, renewals) * 1e6,
            "cpu": 100 * cpu / seconds,
            "requests": spent.requests / seconds,
            "lost": sum(not self.adapter.owns(one) for one in self.held),
        }

"""The memory of held locks in Redis, and what remains after their release."""

from __future__ import annotations

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import Figures


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, locks: int) -> None:
        self.probe = Probe(url)
        self.adapter = make(url)
        self.adapter.release(self.adapter.acquire("warm"))  # scripts, connections and counters don't count
        self.locks = locks

    def measure(self) -> Figures:
        empty, keys = self._memory(), self._keys()
        held = [self.adapter.acquire(f"key{number:06d}") for number in range(self.locks)]
        full, more = self._memory(), self._keys()
        for one in held:
            self.adapter.release(one)
        return {
            "bytes": (full - empty) / self.locks,
            "keys": (more - keys) / self.locks,
            "left_bytes": (self._memory() - empty) / self.locks,
            "left_keys": (self._keys() - keys) / self.locks,
        }

    def _memory(self) -> int:
        return self.probe.counters().memory

    def _keys(self) -> int:
        return int(self.probe.ask(b"DBSIZE"))

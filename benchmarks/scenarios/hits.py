"""Repeated reads of a cached value."""

from __future__ import annotations

import os
from typing import Any

from ..probe import Probe
from ..stats import Figures
from .operations import time_per_operation

WARM = 200


class Scenario:
    def __init__(self, make: type[Any], url: str, *, size: int) -> None:
        """size: of the value in bytes; 0 for a number."""
        key = f"bench:hit:{os.getpid()}"
        value: Any = os.urandom(size // 2).hex() if size else 42
        adapter = make(url)
        self.probe = Probe(url)
        if adapter.load(key, lambda: value) != value:
            raise ValueError("it has another value")
        self.get = adapter.get(key)
        if self.get() != value:
            raise ValueError("it isn't a hit")
        self._gets(WARM)

    def measure(self, *, seconds: float) -> Figures:
        return time_per_operation(self._gets, seconds, self.probe)

    def _gets(self, number: int) -> None:
        get = self.get
        for _ in range(number):
            get()

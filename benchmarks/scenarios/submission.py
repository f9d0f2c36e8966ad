"""Submission of jobs that no worker runs: different ones, or the same one each time."""

from __future__ import annotations

import itertools

from ..adapters.base import Adapter
from ..probe import Probe
from ..stats import Figures
from .operations import counts_per_operation, time_per_operation

WARM = 100


class Scenario:
    def __init__(self, make: type[Adapter], url: str, *, same: bool) -> None:
        self.adapter = make(url)
        self.keys = itertools.repeat("job") if same else (f"job {number}" for number in itertools.count())
        self.probe = Probe(url)
        self._submit(WARM)

    def measure(self, *, seconds: float = 0.0) -> Figures:
        """Measure time if ``seconds`` is given; otherwise count calls and requests."""
        if seconds:
            return time_per_operation(self._submit, seconds, self.probe)
        return counts_per_operation(self._submit, self.probe)

    def _submit(self, number: int) -> None:
        submit = self.adapter.acquire
        for key in itertools.islice(self.keys, number):
            submit(key)

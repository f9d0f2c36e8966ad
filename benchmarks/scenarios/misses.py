"""Loads of values that aren't in the cache, by one caller."""

from __future__ import annotations

import cProfile
import importlib
import itertools
import os
import types
from typing import Any

from ..probe import Probe
from ..stats import Figures
from .operations import time_per_operation

WARM = 100
COUNTED = 100


class Scenario:
    def __init__(self, make: type[Any], url: str) -> None:
        self.adapter = make(url)
        self.probe = Probe(url)
        self.keys = (f"bench:miss:{os.getpid()}:{number}" for number in itertools.count())
        self._loads(WARM)

    def measure(self, *, seconds: float = 0.0) -> Figures:
        """Measure time if ``seconds`` is given; otherwise count the calls of the adapter's own package."""
        return time_per_operation(self._loads, seconds, self.probe) if seconds else self._count()

    def _loads(self, number: int) -> None:
        load = self.adapter.load
        for key in itertools.islice(self.keys, number):
            load(key, loader)

    def _count(self) -> Figures:
        """The Python functions of the package that a miss calls, and the number of files that they are in."""
        if not self.adapter.package:
            return {}
        folder = importlib.import_module(self.adapter.package).__path__[0]
        profile = cProfile.Profile()
        profile.enable()
        self._loads(COUNTED)
        profile.disable()
        calls: dict[str, int] = {}
        for entry in profile.getstats():
            if isinstance(entry.code, types.CodeType) and entry.code.co_filename.startswith(folder):
                calls[entry.code.co_filename] = calls.get(entry.code.co_filename, 0) + entry.callcount
        # fewer than one per miss: the functions that check a connection now and then
        usual = {file: count // COUNTED for file, count in calls.items() if count >= COUNTED}
        return {"calls": sum(usual.values()), "files": len(usual)}


def loader() -> int:
    return 42

"""The rows of the table: which adapters meet which scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..bench import Bench
from . import caches, growth, hot, others, uncontended


class Row(NamedTuple):
    title: str
    run: Callable[[Bench], None]


ROWS = {
    "1": Row("One lock without contention", uncontended.run),
    "2": Row("asyncio", others.tasks),
    "3": Row("One hot lock", hot.run),
    "4": Row("500 waiters for one lock", others.waiters),
    "5": Row("Many locks renewed", others.renewals),
    "6": Row("Memory in Redis per held lock", others.memory),
    "7": Row("One missing value, 200 callers, a loader of 100 ms", caches.run),
    "8": Row("Celery: one job submitted", others.submissions),
    "growth": Row("How the cost grows", growth.run),
}
USUAL = [number for number in ROWS if number != "growth"]  # the default

"""The rows: which adapters run which scenario. A row has the name of its module here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..bench import Bench
from . import cache, celery, family, growth, hot, memory, renewals, stores, tasks, uncontended, waiters


class Row(NamedTuple):
    title: str
    run: Callable[[Bench], None]


ROWS = {
    "uncontended": Row("One lock without contention", uncontended.run),
    "tasks": Row("Tasks of asyncio", tasks.run),
    "hot": Row("One hot lock", hot.run),
    "family": Row("Fair locks, semaphores, read-write locks", family.run),
    "waiters": Row("500 waiters for one lock", waiters.run),
    "renewals": Row("Many locks renewed", renewals.run),
    "memory": Row("Memory in Redis per held lock", memory.run),
    "cache": Row("Cached values: stampedes, a miss, hits", cache.run),
    "celery": Row("Celery: one job submitted", celery.run),
    "stores": Row("Sentinel, Cluster and Redlock", stores.run),
    "growth": Row("How the cost grows", growth.run),
}

"""One lock that one thread acquires and releases."""

from __future__ import annotations

from ..bench import Bench

ADAPTERS = [
    "raw",
    "ours",
    "ours-renewed",
    "redlock-ng",
    "redis-py",
    "django-redis",
    "python-redis-lock",
    "pottery",
]


def run(bench: Bench) -> None:
    one_core, two_cores = bench.case("uncontended", "one-core", "same"), bench.case("uncontended", "two-cores", "split")
    bench.run_one_by_one(one_core, ADAPTERS, "uncontended", max_rounds=1)  # counts, which are exact
    bench.run_interleaved(one_core, ADAPTERS, "uncontended", seconds=0.08)
    bench.run_interleaved(two_cores, ADAPTERS, "uncontended", seconds=0.08)

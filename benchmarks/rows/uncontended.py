"""Row 1: one lock without contention."""

from __future__ import annotations

from ..bench import Bench

PEERS = [
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
    same, split = bench.case("1", "same", "same"), bench.case("1", "split", "split")
    bench.run_one_by_one(same, PEERS, "uncontended", max_rounds=1)  # counts, which are exact
    bench.run_interleaved(same, PEERS, "uncontended", seconds=0.08)
    bench.run_interleaved(split, PEERS, "uncontended", seconds=0.08)

"""Row 1: one lock, nobody else."""

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
    bench.turns(same, PEERS, "uncontended", most=1)  # counts, which are exact
    bench.slices(same, PEERS, "uncontended", seconds=0.08)
    bench.slices(split, PEERS, "uncontended", seconds=0.08)

"""The other kinds of locks: fair locks, semaphores and read-write locks, beside the plain lock."""

from __future__ import annotations

from ..bench import Bench
from .hot import SECTION

PAIRS = ["ours", "ours-fair", "ours-semaphore", "ours-semaphore-1000", "ours-read", "ours-write"]
HOT = ["baton", "ours", "ours-fair", "ours-semaphore", "ours-write", "redis-py", "python-redis-lock"]
READERS = ["three-reads", "ours-read", "ours", "redis-py"]
PROCESSES, THREADS = 8, 8
ROUNDS = 3  # of readers


def run(bench: Bench) -> None:
    pair = bench.case("family", "pair", "same")
    bench.run_one_by_one(pair, PAIRS, "uncontended", max_rounds=1)  # counts, which are exact
    bench.run_interleaved(pair, PAIRS, "uncontended", seconds=0.08)
    bench.run_one_by_one(
        bench.case("family", "8-processes-1ms", "none"),
        HOT,
        "hot",
        arguments={"seconds": 0.7},
        workers=8,
        processes=True,
        section=SECTION,
    )
    bench.run_one_by_one(
        bench.case("family", "readers", "none"),
        READERS,
        "readers",
        arguments={"seconds": 1.0},
        max_rounds=ROUNDS,
        processes=PROCESSES,
        threads=THREADS,
    )

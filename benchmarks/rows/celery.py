"""`delay()` of a Celery task: another job each time, and the same job each time."""

from __future__ import annotations

from ..bench import Bench

ADAPTERS = ["celery", "celery-guarded", "ours-celery", "celery-singleton", "celery-once"]


def run(bench: Bench) -> None:
    for name, same in (("another-job", False), ("same-job", True)):
        case = bench.case("celery", name, "same")
        bench.run_one_by_one(case, ADAPTERS, "submission", max_rounds=1, same=same)  # counts, which are exact
        bench.run_interleaved(case, ADAPTERS, "submission", seconds=0.3, same=same)

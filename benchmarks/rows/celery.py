"""`delay()` of a Celery task: another job each time, and the same job each time."""

from __future__ import annotations

from ..bench import Bench

ADAPTERS = ["celery", "celery-guarded", "ours-celery", "celery-singleton", "celery-once"]


def run(bench: Bench) -> None:
    for name, same in (("another-job", False), ("same-job", True)):
        bench.run_interleaved(bench.case("celery", name, "same"), ADAPTERS, "submission", seconds=0.3, same=same)

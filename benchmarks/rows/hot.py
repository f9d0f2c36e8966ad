"""One lock that all workers contend for, and one waiter for a lock that is released."""

from __future__ import annotations

from ..bench import Bench, Case
from ..stats import percentile

LIBRARIES = ["ours", "python-redis-lock", "redis-py", "redlock-ng", "pottery"]
EMPTY_SECTION = ["baton", "ours", "python-redis-lock", "redis-py"]
SECTION = 0.001  # seconds


def run(bench: Bench) -> None:
    for name, adapters, workers, processes, section in (
        ("8-threads", ["baton", *LIBRARIES], 8, False, 0.0),
        ("4-processes-1ms", ["baton", "baton-redis-py", *LIBRARIES], 4, True, SECTION),
        ("8-processes-1ms", ["baton", "baton-redis-py", *LIBRARIES], 8, True, SECTION),
        ("8-processes", EMPTY_SECTION, 8, True, 0.0),
    ):
        bench.run_one_by_one(
            bench.case("hot", name, "none"),
            adapters,
            "hot",
            arguments={"seconds": 0.7},
            workers=workers,
            processes=processes,
            section=section,
        )
    case = bench.case("hot", "lone-waiter", "none")
    bench.run_one_by_one(case, ["baton", "baton-redis-py", *LIBRARIES], "wake", arguments={"seconds": 1.2})
    pool(case)


def pool(case: Case) -> None:
    """Replace samples by percentiles. The p99 is of all rounds together, because one round has too few samples."""
    for figures in case.figures.values():
        rounds = figures.pop("samples", [])
        figures["p50"] = [percentile(samples, 50) for samples in rounds]  # type: ignore[arg-type]
        figures["p99"] = [percentile([one for samples in rounds for one in samples], 99)]  # type: ignore[attr-defined]

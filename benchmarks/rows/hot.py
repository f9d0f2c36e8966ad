"""Row 3: one lock that all workers contend for."""

from __future__ import annotations

from ..bench import Bench, Case
from ..stats import percentile

THREADS = ["baton", "ours", "python-redis-lock", "redis-py", "redlock-ng", "pottery"]
EMPTY = ["baton", "ours", "python-redis-lock", "redis-py"]


def run(bench: Bench) -> None:
    arguments = {"seconds": 0.7}
    for name, adapters, processes, section in (
        ("threads", THREADS, False, 0.0),
        ("processes-1ms", THREADS, True, 0.001),
        ("processes", EMPTY, True, 0.0),
    ):
        case = bench.case("3", name, "none")
        bench.run_one_by_one(
            case, adapters, "hot", arguments=arguments, workers=8, processes=processes, section=section
        )
    case = bench.case("3", "wake", "none")
    bench.run_one_by_one(case, THREADS, "wake", arguments={"seconds": 1.2})
    pool(case)


def pool(case: Case) -> None:
    """Replace samples by percentiles. The p99 is of all rounds together, because one round has too few samples."""
    for figures in case.figures.values():
        rounds = figures.pop("samples", [])
        figures["p50"] = [percentile(samples, 50) for samples in rounds]  # type: ignore[arg-type]
        figures["p99"] = [percentile([one for samples in rounds for one in samples], 99)]  # type: ignore[attr-defined]

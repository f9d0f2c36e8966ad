"""Memory in Redis per held lock."""

from __future__ import annotations

from ..bench import Bench

ADAPTERS = ["ours", "ours-bare", "redis-py", "python-redis-lock", "django-redis", "redlock-ng", "pottery"]
ROUNDS = 3


def run(bench: Bench) -> None:
    bench.run_one_by_one(bench.case("memory", "held", "none"), ADAPTERS, "memory", max_rounds=ROUNDS, locks=2000)

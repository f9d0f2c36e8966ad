"""Many held locks whose leases are renewed."""

from __future__ import annotations

from ..bench import Bench

FEWER = ["raw-renewed", "ours", "one-by-one", "python-redis-lock-pool", "python-redis-lock"]
MORE = ["raw-renewed", "ours", "one-by-one"]
LEASE = 6.0  # short: every library renews within WATCHED seconds, after a third or two thirds of it
WATCHED = 4.0
ROUNDS = 3


def run(bench: Bench) -> None:
    for locks, adapters in ((1_000, FEWER), (10_000, MORE)):
        case = bench.case("renewals", f"{locks}", "none")
        arguments = {"seconds": WATCHED, "locks": locks}
        bench.run_one_by_one(case, adapters, "renewals", arguments=arguments, max_rounds=ROUNDS, lease=LEASE)

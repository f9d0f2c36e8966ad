"""Locks on a Cluster, on Sentinel and on a Redlock, beside one server and the other Redlocks. What replication costs is no
part of the comparison: the Cluster has no replicas, and the master of Sentinel is measured by its own URL, too."""

from __future__ import annotations

from ..bench import Bench
from .hot import pool

ONE_MASTER = ["ours", "ours-cluster", "ours-replicated", "ours-sentinel"]
FIVE_MASTERS = ["raw-round", "ours-redlock", "redlock-ng-five", "pottery-five"]
ONE_MASTER_TASKS = ["ours-tasks", "ours-cluster-tasks", "ours-replicated-tasks", "ours-sentinel-tasks"]
FIVE_MASTERS_TASKS = ["ours-redlock-tasks", "redlock-ng-five-tasks", "pottery-five-tasks"]


def run(bench: Bench) -> None:
    with bench.stores():
        for name, adapters in {
            "pair": ONE_MASTER,
            "pair-tasks": ONE_MASTER_TASKS,
            "pair-of-five": FIVE_MASTERS,
            "pair-of-five-tasks": ["raw-round", *FIVE_MASTERS_TASKS],
        }.items():
            bench.run_interleaved(bench.case("stores", name, "none"), adapters, "stores", seconds=0.1)
        case = bench.case("stores", "lone-waiter", "none")
        waiting = [*ONE_MASTER, "ours-redlock", "redlock-ng-five", "pottery-five"]
        bench.run_one_by_one(case, waiting, "wake", arguments={"seconds": 1.2}, counted=False)
        pool(case)

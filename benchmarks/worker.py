"""The process in which one adapter meets one scenario. The first line of its input says which; each further line is a
set of arguments for `measure`, answered by a line of figures.

    {"adapter": "raw", "scenario": "uncontended", "url": "redis://...", "cpu": 0, "options": {}}
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from typing import Any

from .adapters import ADAPTERS, load


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    order: dict[str, Any] = json.loads(sys.stdin.readline())
    if order["cpu"] is not None:
        os.sched_setaffinity(0, {order["cpu"]})
    module = importlib.import_module(f"benchmarks.scenarios.{order['scenario']}")
    scenario = module.Scenario(load(order["adapter"]), order["url"], **order["options"])
    answer({"versions": versions(order["adapter"])})
    for line in sys.stdin:
        answer(scenario.measure(**json.loads(line)))
    os._exit(0)  # threads that still wait, and leases that still are renewed, end here


def versions(name: str) -> dict[str, str]:
    """Of the library, and of what it stands on; that may be another one than its neighbours have."""
    peer = ADAPTERS[name]
    found = {}
    for distribution in {peer.distribution, "redis", "hiredis", "Django"} - {""}:
        foreign = peer.venv != "main" and distribution != peer.distribution
        shown = f"{distribution} (for {peer.venv})" if foreign else distribution
        try:
            found[shown] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()

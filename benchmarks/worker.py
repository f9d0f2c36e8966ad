"""The process that runs one adapter in one scenario. The first line of its input names both; each further line has the
arguments of a call of `measure`, and is answered by a line of figures.

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
    os.dup2(2, 1)  # output of libraries goes to stderr

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    request: dict[str, Any] = json.loads(sys.stdin.readline())
    if request["cpu"] is not None:
        os.sched_setaffinity(0, {request["cpu"]})
    module = importlib.import_module(f"benchmarks.scenarios.{request['scenario']}")
    scenario = module.Scenario(load(request["adapter"]), request["url"], **request["options"])
    answer({"versions": versions(request["adapter"])})
    for line in sys.stdin:
        answer(scenario.measure(**json.loads(line)))
    os._exit(0)  # ends waiting threads and renewals, too


def versions(name: str) -> dict[str, str]:
    """The versions of a library and of its dependencies, which may differ between environments."""
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

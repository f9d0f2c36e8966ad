"""Measure this library and others: python -m benchmarks --rows hot,celery --only ours,baton,celery"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tools.redis_server import RedisServer

from . import publish
from .adapters import ADAPTERS
from .bench import Bench
from .budgets import verdicts
from .rows import ROWS
from .tables import cells, failure_notes, shown, text, view


def main() -> int:
    options = arguments()
    began = time.monotonic()
    passed = True
    with RedisServer() as server:
        bench = Bench(server, options.rounds, options.only)
        for row in options.rows:
            ROWS[row].run(bench)
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            passed &= show(bench, row)
            publish.save(bench)
        if not options.only and options.rows == list(ROWS):  # otherwise a page would mix the figures of two runs
            publish.write(bench)
            print(f"\nWritten: {publish.PAGE.relative_to(publish.ROOT)}")
    if os.getloadavg()[2] > len(os.sched_getaffinity(0)):
        print(
            "\nThis machine is busy: tables that aren't pinned to a core are unreliable. CPU times and counts are valid."
        )
    print(
        f"{options.rounds} rounds, {time.monotonic() - began:.0f} s. All values: {publish.RAW.relative_to(publish.ROOT)}"
    )
    return 0 if passed or not options.strict else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=words, default=list(ROWS), help=f"such as hot,celery; of {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=words, default=[], help=f"of {', '.join(ADAPTERS)}; ours means all of ours")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a budget isn't met")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    if unknown := set(options.only) - set(ADAPTERS):
        parser.error(f"there is no adapter {', '.join(sorted(unknown))}")
    return options


def words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def show(bench: Bench, row: str) -> bool:
    """Print the tables and budgets of a row. Return whether all budgets are met."""
    print(f"\n{row}: {ROWS[row].title}")
    for case in bench.cases:
        if case.row == row:
            print(f"\n{view(case).caption} (placement: {case.placement})")
            print(text(cells(case)))
            print(*failure_notes(case), sep="\n", end="")
    cases = {f"{case.row} {case.name}": case for case in bench.cases}
    found = [one for one in verdicts(cases) if one.budget.row == row and (one.measured or not bench.only)]
    print()
    for one in found:
        limit = f"{'≥' if one.budget.at_least else '≤'} {one.budget.limit:g}"
        answer = "pass" if one.passed else "FAIL"
        print(f"  {answer}  {one.budget.promise:55} {limit:>8}  {shown(one.value, one.budget.digits, ''):>8}")
    return all(one.passed for one in found)


if __name__ == "__main__":
    raise SystemExit(main())

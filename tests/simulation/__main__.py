"""``make simulate``: many seeds on all cores, or one seed with its trace."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

CHUNK = 1000

FAILURES = 5
"""How many failing seeds of each world are printed."""


def log(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prepare() -> None:
    """Set Django up as for the tests, in each process."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()


def explore(world: str, seeds: range) -> list[int]:
    """The seeds that violate a rule."""
    from tests.simulation.explore import simulator

    with simulator() as simulation:
        return [seed for seed in seeds if simulation.run(world, seed).problems]


def print_trace(world: str, seed: int, triggers: frozenset[str]) -> bool:
    """Print the trace of a seed. Returns whether no rule is violated."""
    from tests.simulation.explore import simulator

    with simulator() as simulation:
        outcome = simulation.run(world, seed, triggers, verbose=True)
    log(str(outcome))
    return not outcome.problems


def chunks(count: int, worlds: list[str], begin: int) -> Iterator[tuple[str, range]]:
    for first in range(begin, begin + count, CHUNK):
        for world in worlds:
            yield world, range(first, min(first + CHUNK, begin + count))


def explore_all(count: int, worlds: list[str], begin: int) -> int:
    """Explore ``count`` seeds of each world. Returns how many failed."""
    failed: dict[str, list[int]] = {world: [] for world in worlds}
    done, total, started = 0, count * len(worlds), time.monotonic()
    with ProcessPoolExecutor(initializer=prepare) as pool:
        waiting = {pool.submit(explore, world, seeds): (world, seeds) for world, seeds in chunks(count, worlds, begin)}
        for future in as_completed(waiting):
            world, seeds = waiting.pop(future)
            done += len(seeds)
            for seed in future.result():
                if len(failed[world]) < FAILURES:
                    log(f"FAILED: make simulate WORLD={world} SEED={seed}")
                failed[world].append(seed)
            rate = done / (time.monotonic() - started)
            log(f"{done}/{total} seeds, {rate:.0f} per second, {sum(map(len, failed.values()))} failed")
    return sum(map(len, failed.values()))


def main() -> None:
    prepare()
    from tests.simulation.explore import WORLDS

    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many seeds of each world")
    parser.add_argument("--begin", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this seed, with its trace")
    parser.add_argument("--world", choices=list(WORLDS), help="only this world")
    parser.add_argument("--triggers", default="", help="known defects to allow, such as E2,E11")
    options = parser.parse_args()
    worlds = [options.world] if options.world else list(WORLDS)
    if options.seed is not None:
        triggers = frozenset(filter(None, options.triggers.split(",")))
        passed = [print_trace(world, options.seed, triggers) for world in worlds]
        sys.exit(0 if all(passed) else 1)
    sys.exit(1 if explore_all(options.seeds, worlds, options.begin) else 0)


if __name__ == "__main__":
    main()

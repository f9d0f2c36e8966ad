"""``make simulate``: many seeds on all cores, or one alone with its story."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

CHUNK = 1000

FAILURES = 5
"""Seeds of each world that are shown before it is given up."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prepare() -> None:
    """Django, as tests have it; in each process."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()


def explore(world: str, seeds: range) -> list[int]:
    """Those that break a rule."""
    from tests.simulation.explore import simulator

    with simulator() as simulation:
        return [seed for seed in seeds if simulation.run(world, seed).problems]


def tell(world: str, seed: int, triggers: frozenset[str]) -> bool:
    """Print the story of a seed; whether all is well."""
    from tests.simulation.explore import simulator

    with simulator() as simulation:
        outcome = simulation.run(world, seed, triggers, verbose=True)
    say(str(outcome))
    return not outcome.problems


def chunks(count: int, worlds: list[str], begin: int) -> Iterator[tuple[str, range]]:
    for first in range(begin, begin + count, CHUNK):
        for world in worlds:
            yield world, range(first, min(first + CHUNK, begin + count))


def night(count: int, worlds: list[str], begin: int) -> int:
    """Explore so many seeds of each world. Returns how many failed."""
    failed: dict[str, list[int]] = {world: [] for world in worlds}
    done, total, started = 0, count * len(worlds), time.monotonic()
    with ProcessPoolExecutor(initializer=prepare) as pool:
        waiting = {pool.submit(explore, world, seeds): (world, seeds) for world, seeds in chunks(count, worlds, begin)}
        for future in as_completed(waiting):
            world, seeds = waiting.pop(future)
            done += len(seeds)
            for seed in future.result():
                if len(failed[world]) < FAILURES:
                    say(f"FAILED: make simulate WORLD={world} SEED={seed}")
                failed[world].append(seed)
            rate = done / (time.monotonic() - started)
            say(f"{done}/{total} seeds, {rate:.0f} per second, {sum(map(len, failed.values()))} failed")
    return sum(map(len, failed.values()))


def main() -> None:
    prepare()
    from tests.simulation.explore import WORLDS

    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many of each world")
    parser.add_argument("--begin", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its story")
    parser.add_argument("--world", choices=list(WORLDS), help="only this world")
    parser.add_argument("--triggers", default="", help="known defects to allow, such as E2,E11")
    options = parser.parse_args()
    worlds = [options.world] if options.world else list(WORLDS)
    if options.seed is not None:
        triggers = frozenset(filter(None, options.triggers.split(",")))
        told = [tell(world, options.seed, triggers) for world in worlds]
        sys.exit(0 if all(told) else 1)
    sys.exit(1 if night(options.seeds, worlds, options.begin) else 0)


if __name__ == "__main__":
    main()

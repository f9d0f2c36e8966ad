"""Each seed simulates a few processes in virtual time, with faults; no seed violates a rule."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from django_redis_locks.core import forks, owners
from tests.simulation import cache_mutations, job_mutations, latch_mutations, lock_mutations, permit_mutations
from tests.simulation.explore import WORLDS, Medians, Simulator, simulator
from tests.simulation.known_defects import FIXED_DEFECTS, KNOWN_DEFECTS, KnownDefect

CHUNK = 500

CHUNKS = [
    *(("lock", number) for number in range(6)),
    *(("job", number) for number in range(2)),
    *(("cache", number) for number in range(2)),
    ("latch", 0),
    ("permit", 0),
    ("permit", 1),
]

MAX_SEEDS = 2000
"""A mutation must be detected within this number of seeds."""

MUTATIONS = [
    *(("lock", *entry, "") for entry in lock_mutations.MUTATIONS),
    *(("job", *entry, "") for entry in job_mutations.MUTATIONS),
    *(("cache", *entry) for entry in cache_mutations.MUTATIONS),
    *(("latch", *entry, "") for entry in latch_mutations.MUTATIONS),
    *(("permit", *entry, "") for entry in permit_mutations.MUTATIONS),
]


@pytest.mark.parametrize(("world", "chunk"), CHUNKS)
def test_simulation_of_random_seeds_violates_no_rule(world: str, chunk: int, record_property: Any) -> None:
    """[H1-H24] [L32-L37] [F26] One holder per key, and no more permits than the limit; fences grow; waits end; nothing stays held; no waiter sleeps for a free
    lock."""
    outcomes = []
    with simulator() as simulation:
        for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            outcome = simulation.run(world, seed)
            if outcome.problems:
                pytest.fail(f"{outcome}\n\nAgain, with its trace:\n{simulation.run(world, seed, verbose=True)}")
            outcomes.append(outcome)
    medians = Medians.of(outcomes)
    record_property("simulation", [world, len(outcomes), medians.effects, medians.processes, medians.faults])
    assert medians.effects >= 40
    assert medians.processes >= 2
    assert medians.faults >= 1


@pytest.mark.parametrize("world", WORLDS)
def test_simulation_of_one_seed_twice_gives_the_same_trace(world: str) -> None:
    def trace(simulation: Simulator, seed: int) -> list[str]:
        return simulation.run(world, seed, verbose=True).trace

    with simulator() as simulation:
        for seed in range(20):
            assert trace(simulation, seed) == trace(simulation, seed), seed


def test_simulation_is_not_disturbed_by_a_thread_of_another_test() -> None:
    """Such as a maintenance thread that still cleans up at a server which has ended."""
    log, ended = logging.getLogger("django_redis_locks"), threading.Event()

    def disturb() -> None:
        while not ended.wait(0.001):
            forks.pid()
            owners.current_owner()
            log.error("not of the simulation", exc_info=ValueError())

    with simulator() as simulation:
        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            problems = [problem for seed in range(100) for problem in simulation.run("lock", seed).problems]
        finally:
            ended.set()
            thread.join()
    assert not problems


@pytest.mark.parametrize("world", WORLDS)
def test_simulation_under_another_hash_seed_gives_the_same_trace(world: str) -> None:
    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.simulation", "--world", world, "--seed", "7"]
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout

    assert trace("1") == trace("2")


@pytest.mark.parametrize(
    ("world", "mutation", "why", "scene"), MUTATIONS, ids=[entry[1].__name__ for entry in MUTATIONS]
)
def test_simulation_of_a_mutation_violates_a_rule(
    world: str, mutation: Any, why: str, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation detects each mutation of the package."""
    with simulator() as simulation:
        mutation(monkeypatch)
        outcome = simulation.first_failure(world, range(MAX_SEEDS), scene)
        assert outcome is not None
        assert any(re.search(why, problem) for problem in outcome.problems), outcome


@pytest.mark.parametrize("defect", KNOWN_DEFECTS, ids=[defect.number for defect in KNOWN_DEFECTS])
def test_simulation_of_a_known_defect_still_finds_it(defect: KnownDefect) -> None:
    """It fails when a defect is fixed, which then moves to the other list."""
    with simulator() as simulation:
        outcome = simulation.run(defect.world, defect.seed, frozenset({defect.number}), verbose=True)
        assert any(defect.why in problem for problem in outcome.problems), outcome


@pytest.mark.parametrize("defect", FIXED_DEFECTS, ids=[defect.number for defect in FIXED_DEFECTS])
def test_simulation_of_a_fixed_defect_violates_no_rule(defect: KnownDefect) -> None:
    with simulator() as simulation:
        for seed in range(20):
            outcome = simulation.run(defect.world, seed, frozenset({defect.number}), verbose=True)
            assert not outcome.problems, outcome

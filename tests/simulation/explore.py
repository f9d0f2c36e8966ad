"""Runs seeds: in tests, in large numbers, or one with its trace."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.simulation.cache_world import CacheWorld
from tests.simulation.installation import Installation, installed
from tests.simulation.job_world import JobWorld
from tests.simulation.latch_world import LatchWorld
from tests.simulation.lock_world import LockWorld
from tests.simulation.permit_world import PermitWorld

if TYPE_CHECKING:
    from collections.abc import Callable

WORLDS: dict[str, Callable[..., Any]] = {
    "lock": LockWorld,
    "job": JobWorld,
    "cache": CacheWorld,
    "latch": LatchWorld,
    "permit": PermitWorld,
}

NO_TRIGGERS: frozenset[str] = frozenset()

COLLECT_EVERY = 100
"""Seeds between two garbage collections. During a simulation a collection would change its course."""


@dataclass
class Outcome:
    """The result of one seed."""

    world: str
    seed: int
    problems: list[str]
    trace: list[str]
    effects: int
    processes: int
    faults: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.world} world, seed {self.seed}:",
                *self.trace,
                *self.problems,
                f"Again: make simulate WORLD={self.world} SEED={self.seed}",
            ]
        )


@contextmanager
def simulator() -> Iterator[Simulator]:
    """Run simulations one after the other in this thread."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with installed() as installation:
            yield Simulator(installation)
    finally:
        gc.enable()
        gc.unfreeze()


class Simulator:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._count = 0

    def run(
        self,
        world: str,
        seed: int,
        triggers: frozenset[str] = NO_TRIGGERS,
        *,
        scene: str = "",
        verbose: bool = False,
    ) -> Outcome:
        """Simulate one seed. ``scene`` replaces the scene that the seed chooses."""
        how = {"scene": scene} if scene else {}
        simulated = WORLDS[world](seed, self._installation, triggers, **how)
        simulated.scheduler.verbose = verbose
        try:
            simulated.run()
        finally:
            simulated.close()
            self._installation.end()
            self._count += 1
            if self._count % COLLECT_EVERY == 0:
                gc.collect()
        return Outcome(
            world,
            seed,
            simulated.scheduler.problems,
            simulated.scheduler.trace,
            simulated.server.effects,
            len(simulated.processes),
            simulated.faults.counts.total(),
        )

    def first_failure(self, world: str, seeds: Iterable[int], scene: str = "") -> Outcome | None:
        """The first seed that violates a rule, with its trace."""
        for seed in seeds:
            if self.run(world, seed, scene=scene).problems:
                return self.run(world, seed, scene=scene, verbose=True)
        return None


@dataclass
class Medians:
    """The medians of the outcomes of many seeds."""

    effects: float
    processes: float
    faults: float

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> Medians:
        return cls(
            median(outcome.effects for outcome in outcomes),
            median(outcome.processes for outcome in outcomes),
            median(outcome.faults for outcome in outcomes),
        )

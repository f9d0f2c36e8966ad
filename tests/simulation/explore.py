"""Runs seeds: in tests, for a night, or one alone with its story."""

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
from tests.simulation.lock_world import LockWorld

if TYPE_CHECKING:
    from collections.abc import Callable

WORLDS: dict[str, Callable[..., Any]] = {"lock": LockWorld, "job": JobWorld, "cache": CacheWorld}

NO_TRIGGERS: frozenset[str] = frozenset()

COLLECT_EVERY = 100
"""Seeds between two garbage collections: none runs during a simulation, where it would end things at a random moment."""


@dataclass
class Outcome:
    """Of one seed."""

    world: str
    seed: int
    problems: list[str]
    story: list[str]
    effects: int
    processes: int
    faults: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.world} world, seed {self.seed}:",
                *self.story,
                *self.problems,
                f"Again: make simulate WORLD={self.world} SEED={self.seed}",
            ]
        )


@contextmanager
def simulator() -> Iterator[Simulator]:
    """Simulations, one after the other, in this thread."""
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
        """One seed. ``scene``: not the one that the seed chooses, for worlds that have scenes."""
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
            simulated.scheduler.story,
            simulated.server.effects,
            len(simulated.processes),
            simulated.faults.counts.total(),
        )

    def first_failure(self, world: str, seeds: Iterable[int], scene: str = "") -> Outcome | None:
        """The first seed that breaks a rule, with its story."""
        for seed in seeds:
            if self.run(world, seed, scene=scene).problems:
                return self.run(world, seed, scene=scene, verbose=True)
        return None


@dataclass
class Medians:
    """Of many seeds: what happened in one."""

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

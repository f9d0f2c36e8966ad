"""The visits of threads and tasks in the lock world, drawn by the seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class Visit:
    """One acquire, the steps while the lock is held, and the release.

    Attributes:
        wait: in seconds; 0 makes one attempt.
        expire: a fixed lease in seconds; None: the settings' lease, renewed.
        block: ``with lock``, else ``acquire`` and ``release``.
        steps: while the lock is held: ("stay", seconds), ("extend", seconds), ("confirm", 0), ("look", 0), ("reenter",
            0).
        forgets: never releases.
        keys: those of several locks that are acquired together, instead of ``key``.
    """

    key: str
    pause: float
    wait: float
    expire: float | None
    block: bool
    reentrant: bool
    steps: list[tuple[str, float]] = field(default_factory=list)
    never_releases: bool = False
    keys: tuple[str, ...] = ()


def draw_visit(random: Random, keys: list[str], lease: float) -> Visit:
    key = keys[0] if random.random() < 0.8 else random.choice(keys)
    expire = None if random.random() < 0.6 else random.choice([0.5, 1.5, 4.0])
    visit = Visit(
        key,
        pause=random.choice([0.0, 0.0, 0.0, random.uniform(0.0, 1.0)]),
        wait=random.choice([0.0, 0.3, 3.0, 3.0, 12.0, 12.0]),
        expire=expire,
        block=random.random() < 0.5,
        reentrant=random.random() < 0.3,
        never_releases=random.random() < 0.04,
    )
    length = lease if expire is None else expire
    for _ in range(random.choice([1, 1, 2, 3])):
        kind = random.choice(["stay", "stay", "stay", "stay", "extend", "confirm", "look", "reenter"])
        if kind == "stay":
            stay = random.choice([0.0, 0.001, 0.001, 0.02, 0.2, 0.4 * length, 1.3 * length])
            visit.steps.append((kind, stay))
        elif kind == "extend":
            visit.steps.append((kind, random.choice([0.5, 1.0, 2.0]) * length))
        elif kind != "reenter" or visit.reentrant:
            visit.steps.append((kind, 0.0))
    return visit


def draw_several(random: Random, visit: Visit, keys: list[str]) -> Visit:
    """Let most visits be to all keys, in any order."""
    if random.random() < 0.7:
        visit.keys = tuple(random.sample(keys, len(keys)))
        visit.never_releases = False
    return visit

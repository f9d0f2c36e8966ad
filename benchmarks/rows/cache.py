"""Cached values: many callers for a missing one, a single miss, and hits."""

from __future__ import annotations

from ..bench import Bench

LOADERS = [
    "ours-load",
    "ours-guarded-load",
    "ours-tasks-load",
    "cashews-load",
    "dogpile-distributed",
    "dogpile-local",
    "python-redis-lock-load",
    "django-load",
    "django-redis-load",
]
CALLERS = {"stampede-1-process": (1, 200), "stampede-4-processes": (4, 50)}
MISSES = {
    "django-load": ["django-load", "ours-load", "ours-guarded-load"],
    "locmem-load": ["locmem-load", "ours-locmem-load"],
}
HITS = {
    "django-get": ["django-get", "ours-django-get", "ours-guarded-get", "ours-guarded-or-set"],
    "django-redis-get": ["django-redis-get", "ours-django-redis-get"],
    "locmem-get": ["locmem-get", "ours-locmem-get"],
}
PLAIN = {adapter: plain for plain, adapters in {**MISSES, **HITS}.items() for adapter in adapters}
"""The cache's own method that an adapter is compared with."""
SIZES = {"hit": 0, "hit-10k": 10_000}  # of the value in bytes; 0 stands for a number

ROUNDS = 3  # of stampedes
STAMPEDES = 3  # per round


def run(bench: Bench) -> None:
    for name, (processes, callers) in CALLERS.items():
        case = bench.case("cache", name, "none")
        arguments = {"times": STAMPEDES}
        bench.run_one_by_one(
            case, LOADERS, "stampede", arguments=arguments, max_rounds=ROUNDS, processes=processes, callers=callers
        )
    misses = [adapter for adapters in MISSES.values() for adapter in adapters]
    case = bench.case("cache", "miss", "same")
    bench.run_interleaved(case, misses, "misses", seconds=0.1)
    bench.run_one_by_one(case, misses, "misses", max_rounds=1)  # counts, which are exact
    hits = [adapter for adapters in HITS.values() for adapter in adapters]
    for name, size in SIZES.items():
        bench.run_interleaved(bench.case("cache", name, "same"), hits, "hits", seconds=0.1, size=size)

"""Row 7: many concurrent callers for a missing value, and cache hits."""

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
CALLERS = {"one-process": (1, 200), "four-processes": (4, 50)}
GETTERS = {  # the plain `get` first
    "django": ["django-get", "ours-django-get", "ours-guarded-get", "ours-guarded-or-set"],
    "django-redis": ["django-redis-get", "ours-django-redis-get"],
    "locmem": ["locmem-get", "ours-locmem-get"],
}
PLAIN = {getter: same[0] for same in GETTERS.values() for getter in same}
SIZES = {"hit": 0, "hit-10k": 10_000}  # of the value in bytes; 0 stands for a number

SLOW = 3  # rounds of long scenarios
STAMPEDES = 3  # per round


def run(bench: Bench) -> None:
    for name, (processes, callers) in CALLERS.items():
        case = bench.case("7", name, "none")
        arguments = {"times": STAMPEDES}
        bench.run_one_by_one(
            case, LOADERS, "stampede", arguments=arguments, max_rounds=SLOW, processes=processes, callers=callers
        )
    for name, size in SIZES.items():
        bench.run_interleaved(bench.case("7", name, "same"), PLAIN, "hits", seconds=0.1, size=size)

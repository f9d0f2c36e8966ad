"""Row 7: a value that many ask for at once, and one that is there."""

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
CROWDS = {"one-process": (1, 200), "four-processes": (4, 50)}
GETTERS = {  # the plain one first
    "django": ["django-get", "ours-django-get", "ours-guarded-get", "ours-guarded-or-set"],
    "django-redis": ["django-redis-get", "ours-django-redis-get"],
    "locmem": ["locmem-get", "ours-locmem-get"],
}
PLAIN = {getter: same[0] for same in GETTERS.values() for getter in same}
SIZES = {"hit": 0, "hit-10k": 10_000}  # of the value in bytes; 0 stands for a number

SLOW = 3  # rounds of what takes long
STAMPEDES = 3  # in each of them


def run(bench: Bench) -> None:
    for name, (processes, callers) in CROWDS.items():
        case = bench.case("7", name, "none")
        arguments = {"times": STAMPEDES}
        bench.turns(case, LOADERS, "stampede", arguments=arguments, most=SLOW, processes=processes, callers=callers)
    for name, size in SIZES.items():
        bench.slices(bench.case("7", name, "same"), PLAIN, "hits", seconds=0.1, size=size)

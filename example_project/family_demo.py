"""The other kinds of locks at work, in short scenes with numbers: fair_lock, rwlock, semaphore, latch, multi_lock.

    python family_demo.py     each scene as a table; the exit code says whether the locks kept their promises

Redis and all processes are the demo's own, and gone when it ends.
"""

from __future__ import annotations

import os
import platform
import sys
import textwrap
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo import BOLD, DIM, GREEN, RED, paint, rule, run, status
from family_crew import SceneFailed
from family_scenes import SCENES

from django_redis_locks import locks
from tools.redis_server import RedisServer

WIDTH = 100


def main() -> int:
    if not hasattr(os, "fork"):
        raise SystemExit("The scenes run in forked processes, which this system doesn't have.")
    return run(lambda stack: show(stack.enter_context(RedisServer()).url()), SceneFailed)


def show(url: str) -> int:
    locks.configure({"default": {"LOCATION": url}})
    began = time.monotonic()
    wrong: list[str] = []
    print(paint(f"\nPython {platform.python_version()}, a Redis of its own, a process for each caller or group", DIM))
    for number, scene in enumerate(SCENES, 1):
        status(f"scene {number} of {len(SCENES)}")
        table = scene(url)
        status("")
        heading, *rows = table.lines()
        print(f"\n{number}. {table.title}\n")
        print(paint(heading, BOLD))
        print(paint(rule() * len(heading), DIM))
        for row in rows[:-1]:
            print(row)
        print(paint(rows[-1], RED if table.wrong else GREEN))
        print(f"\n{textwrap.fill(table.text, WIDTH)}", flush=True)
        wrong += table.wrong
    if wrong:
        print("", *wrong, sep="\n", file=sys.stderr)
        return 1
    print(paint(f"\nAll as promised, in {time.monotonic() - began:.0f} s.\n", DIM))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Eight processes count under one lock behind Redis Sentinel, while the master is killed twice.

    python failover_demo.py     the exit code says whether all went on, and no update was lost

All servers and processes are the demo's own, and gone when it ends.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import tempfile
import textwrap
import time
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo import BOLD, DIM, GREEN, RED, paint, rule, run, status
from failover_report import Kill, counts, failovers
from family_crew import Crew, SceneFailed
from family_demo import WIDTH
from family_report import Table

from django_redis_locks import LockBackendError, LockLost, locks
from tools.redis_sentinel import SentinelGroup

PROCESSES = 8
KILLS = 2
DOWN_AFTER = 1000  # milliseconds of silence after which a master is replaced
CALM = 1.0  # seconds of counting before each kill, and after the last one
LONGEST = 12.0  # seconds from a kill to the next acquire; usually it takes two


def main() -> int:
    if not hasattr(os, "fork"):
        raise SystemExit("The demo runs in forked processes, which this system doesn't have.")
    return run(show, SceneFailed)


def show(stack: ExitStack) -> int:
    group = stack.enter_context(SentinelGroup(down_after=DOWN_AFTER))
    counter = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "counter.sqlite3"
    location = group.location()
    locks.configure({"default": {"LOCATION": location, "BACKEND_WAIT": 15, "EXPIRE": 15}})
    print(
        paint(f"\nPython {platform.python_version()}, {PROCESSES} processes, 3 servers, 3 sentinels: {location}", DIM)
    )
    with closing(open_counter(counter)) as database:
        database.execute("CREATE TABLE counter (value INTEGER, fence INTEGER)")
        database.execute("INSERT INTO counter VALUES (0, 0)")
    with Crew(location) as crew:
        for number in range(1, PROCESSES + 1):
            crew.start(count, counter, number)
        kills = [kill_master(group, crew) for _ in range(KILLS)]
        status("the last second")
        go_on(crew)
        crew.go.set()
        crew.join()
        status("")
        events = crew.events()
    with closing(open_counter(counter)) as database:
        (value,) = database.execute("SELECT value FROM counter").fetchone()
    tables = failovers(kills, events, LONGEST), counts(PROCESSES, kills, events, value)
    for table in tables:
        print_table(table)
    wrong = [problem for table in tables for problem in table.wrong]
    if wrong:
        print("", *wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def kill_master(group: SentinelGroup, crew: Crew) -> Kill:
    """Kill the master after a time of calm, with a replica that follows it, and return when all count again."""
    status("waiting for a replica")
    crew.wait("a replica that is online", lambda: "state=online" in group.master.command("INFO", "replication"))
    go_on(crew)
    former = group.master
    status(f"killing the master on port {former.port}")
    at = time.monotonic()
    former.kill()
    new = group.wait_for_master_other_than(former)
    promoted = time.monotonic()
    go_on(crew)
    return Kill(at, promoted, former.port, new.port)


def go_on(crew: Crew) -> None:
    """Wait until each process has counted once more, and for the time of calm."""
    now = time.monotonic()
    crew.wait(
        "each process to count",
        lambda: len({event.of for event in crew.events() if event.what == "counted" and event.at > now}) == PROCESSES,
    )
    time.sleep(CALM)


def open_counter(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    database.execute("PRAGMA synchronous = OFF")
    return database


def count(crew: Crew, path: Path, number: int) -> None:
    """What one process does until the end: read the counter under the lock, and write it back, one higher."""
    lock = locks.lock("counter", wait=60)
    with closing(open_counter(path)) as database:
        while not crew.go.is_set():
            try:
                with lock as grant:
                    crew.note("acquired", number)
                    crew.note("counted" if increment(database, grant.fence) else "refused", number)
            except LockLost:
                crew.note("lost", number)
            except LockBackendError:
                crew.note("failed", number)


def increment(database: sqlite3.Connection, fence: int) -> bool:
    """Add one. The read leaves the fence, else two holders could read the same value and both write."""
    if not database.execute("UPDATE counter SET fence = ? WHERE fence <= ?", (fence, fence)).rowcount:
        return False
    (value,) = database.execute("SELECT value FROM counter").fetchone()
    return database.execute("UPDATE counter SET value = ? WHERE fence = ?", (value + 1, fence)).rowcount == 1


def print_table(table: Table) -> None:
    heading, *rows = table.lines()
    print(f"\n{table.title}\n\n{paint(heading, BOLD)}\n{paint(rule() * len(heading), DIM)}")
    for row in rows[:-1]:
        print(row)
    print(paint(rows[-1], RED if table.wrong else GREEN))
    print(f"\n{textwrap.fill(table.text, WIDTH)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

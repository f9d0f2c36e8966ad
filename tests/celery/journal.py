"""What happened, in the order in which it happened: a Redis stream that tasks write and tests wait on.

Every entry has the `who` of its test (the first argument of each task), so that nothing has to be flushed between tests.
A gate is a stream too: it is open once it has an entry, for current and for later waiters.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from django_redis_locks import LockNotOwned

PATIENCE = 30.0
"""Seconds after which a body leaves a gate that stays closed, and a test gives up: far more than anything takes."""

STREAM = "journal"
EVERY_GATE = "gate:*"


@dataclass(frozen=True)
class Entry:
    what: str
    ms: int
    """When, on Redis's clock."""
    data: dict[str, Any] = field(hash=False)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __str__(self) -> str:
        rest = " ".join(f"{name}={value}" for name, value in self.data.items() if name != "who" and value is not None)
        return f"{self.ms % 1_000_000:>9} {self.what:<9} {rest}"


def fence_of(task: Any) -> int | None:
    """Celery's own tasks have no lock, and a task that is called directly hasn't either."""
    try:
        return task.lock.fence
    except (AttributeError, LockNotOwned):
        return None


class Journal:
    """One per process; forks and pools are redis-py's affair."""

    def __init__(self, url: str) -> None:
        self.redis = redis.Redis.from_url(url, decode_responses=True, socket_timeout=PATIENCE)
        self._seen = "0"
        self._entries: list[Entry] = []

    def close(self) -> None:
        self.redis.close()

    # What tasks write

    def write(self, what: str, who: str, **data: Any) -> None:
        self.redis.xadd(STREAM, {"what": what, "data": json.dumps({"who": who, "pid": os.getpid(), **data})})

    @contextmanager
    def body(self, task: Any, who: str, **data: Any) -> Iterator[str]:
        """The body of a task, from its first moment to its last one. Gives the run's id."""
        run = uuid.uuid4().hex[:8]
        request = task.request
        self.write(
            "begin",
            who,
            task=task.name,
            id=request.id,
            run=run,
            retries=request.retries,
            node=request.hostname,
            fence=fence_of(task),
            **data,
        )
        how = ""
        try:
            yield run
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self.write("end", who, id=request.id, run=run, how=how)

    def pass_gate(self, who: str, seconds: float = PATIENCE) -> bool:
        """Wait until the test opens it."""
        streams = {f"gate:{who}": "0", EVERY_GATE: "0"}
        deadline = time.monotonic() + seconds
        block = min(100, int(seconds * 1000)) or None
        while not (passed := bool(self.redis.xread(streams, count=1, block=block))) and time.monotonic() < deadline:
            pass
        return passed

    # What tests do and read

    def open_gate(self, who: str) -> None:
        self.redis.xadd(f"gate:{who}", {"open": 1})

    def read(self, block: int | None = None) -> None:
        for _, entries in self.redis.xread({STREAM: self._seen}, block=block) or []:
            for key, fields in entries:
                self._seen = key
                self._entries.append(Entry(fields["what"], int(key.partition("-")[0]), json.loads(fields["data"])))

    def entries(self, who: str, *whats: str, **data: Any) -> list[Entry]:
        """Those of this test, in their order: `entries(who, "begin", "end", id=result.id)`."""
        self.read()
        return [
            entry
            for entry in self._entries
            if entry.data["who"] == who
            and (not whats or entry.what in whats)
            and all(entry.data.get(name) == value for name, value in data.items())
        ]

    def wait(self, who: str, *whats: str, count: int = 1, seconds: float = PATIENCE, **data: Any) -> list[Entry]:
        """At least so many of them; fails with everything that there is."""
        found: list[Entry] = []

        def enough() -> bool:
            found[:] = self.entries(who, *whats, **data)
            return len(found) >= count

        self.until(enough, who, f"{count} x {'/'.join(whats)} {data or ''}", seconds)
        return found

    def until(self, condition: Callable[[], object], who: str, what: str, seconds: float = PATIENCE) -> None:
        """Wait for a condition, which is looked at after each entry and now and then."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s\n{self.story(who)}"
            self.read(block=20)

    def until_rise(self, value: Callable[[], float], who: str, what: str) -> None:
        """Wait for a rise of a value that else falls steadily, and may have risen just before the first look."""
        least = value()

        def has_risen() -> bool:
            nonlocal least
            now, before = value(), least
            least = min(now, before)
            return now > before

        self.until(has_risen, who, what)

    def age(self, entry: Entry) -> float:
        """Seconds since then, on Redis's clock."""
        seconds, micros = self.redis.time()
        return seconds + micros / 1e6 - entry.ms / 1000

    def story(self, who: str) -> str:
        return "\n".join(map(str, self.entries(who)))

    def stays_out(self, who: str, *whats: str, count: int, seconds: float = 0.4, **data: Any) -> None:
        """Nothing of the kind comes for a while. A look that is too short only finds less; it never fails wrongly."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            found = self.entries(who, *whats, **data)
            assert len(found) < count, f"{count} x {'/'.join(whats)} {data or ''} came\n{self.story(who)}"
            self.read(block=max(1, int(left * 1000)))

    def crowd(self, who: str, **data: Any) -> int:
        """The most bodies that were inside at once."""
        inside: dict[str, int] = {}
        most = 0
        for entry in self.entries(who, "begin", "end", "killed"):
            if entry.what != "killed" and any(entry.data.get(name) != value for name, value in data.items()):
                continue
            if entry.what == "begin":
                inside[entry.run] = entry.pid
                most = max(most, len(inside))
            elif entry.what == "end":
                inside.pop(entry.run, None)
            else:
                inside = {run: pid for run, pid in inside.items() if pid not in entry.pids}
        return most

"""A Redis stream to which tasks write what they do, and on which tests wait.

Every entry has the `tag` of its test, so that nothing has to be flushed between tests.
A gate is a stream, too: it opens with its first entry, for current and later waiters.
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

TIMEOUT = 30.0
"""Seconds after which a body stops waiting for a gate, and a test fails: far more than any step needs."""

STREAM = "journal"
EVERY_GATE = "gate:*"


@dataclass(frozen=True)
class Entry:
    what: str
    ms: int
    """When it was written, by the clock of Redis."""
    data: dict[str, Any] = field(hash=False)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __str__(self) -> str:
        rest = " ".join(f"{name}={value}" for name, value in self.data.items() if name != "tag" and value is not None)
        return f"{self.ms % 1_000_000:>9} {self.what:<9} {rest}"


def fence_of(task: Any) -> int | None:
    """The fence of a run; None for plain Celery tasks and direct calls, which have no lock."""
    try:
        return task.lock.fence
    except (AttributeError, LockNotOwned):
        return None


class Journal:
    """One per process. It may be used after a fork, and by several threads: redis-py handles both."""

    def __init__(self, url: str) -> None:
        self.redis = redis.Redis.from_url(url, decode_responses=True, socket_timeout=TIMEOUT)
        self._seen = "0"
        self._entries: list[Entry] = []

    def close(self) -> None:
        self.redis.close()

    # What tasks write

    def write(self, what: str, tag: str, **data: Any) -> None:
        self.redis.xadd(STREAM, {"what": what, "data": json.dumps({"tag": tag, "pid": os.getpid(), **data})})

    @contextmanager
    def body(self, task: Any, tag: str, **data: Any) -> Iterator[str]:
        """Record begin and end of a task's body. Yields an id of the run."""
        run = uuid.uuid4().hex[:8]
        request = task.request
        self.write(
            "begin",
            tag,
            task=task.name,
            id=request.id,
            run=run,
            retries=request.retries,
            worker=request.hostname,
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
            self.write("end", tag, id=request.id, run=run, how=how)

    def pass_gate(self, tag: str, seconds: float = TIMEOUT) -> bool:
        """Wait until the test opens the gate. Return False on timeout."""
        streams = {f"gate:{tag}": "0", EVERY_GATE: "0"}
        deadline = time.monotonic() + seconds
        block = min(100, int(seconds * 1000)) or None
        while not (passed := bool(self.redis.xread(streams, count=1, block=block))) and time.monotonic() < deadline:
            pass
        return passed

    # What tests do and read

    def open_gate(self, tag: str) -> None:
        self.redis.xadd(f"gate:{tag}", {"open": 1})

    def read(self, block: int | None = None) -> None:
        for _, entries in self.redis.xread({STREAM: self._seen}, block=block) or []:
            for key, fields in entries:
                self._seen = key
                self._entries.append(Entry(fields["what"], int(key.partition("-")[0]), json.loads(fields["data"])))

    def entries(self, tag: str, *whats: str, **data: Any) -> list[Entry]:
        """Entries of a test in their order, optionally filtered: `entries(tag, "begin", "end", id=result.id)`."""
        self.read()
        return [
            entry
            for entry in self._entries
            if entry.data["tag"] == tag
            and (not whats or entry.what in whats)
            and all(entry.data.get(name) == value for name, value in data.items())
        ]

    def wait(self, tag: str, *whats: str, count: int = 1, seconds: float = TIMEOUT, **data: Any) -> list[Entry]:
        """Wait for at least ``count`` such entries, and return all. On timeout the error shows all entries of the
        test."""
        found: list[Entry] = []

        def enough() -> bool:
            found[:] = self.entries(tag, *whats, **data)
            return len(found) >= count

        self.until(enough, tag, f"{count} x {'/'.join(whats)} {data or ''}", seconds)
        return found

    def until(self, condition: Callable[[], object], tag: str, what: str, seconds: float = TIMEOUT) -> None:
        """Wait for a condition, which is checked after each entry and every 20 ms."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s\n{self.transcript(tag)}"
            self.read(block=20)

    def until_rise(self, value: Callable[[], float], tag: str, what: str) -> None:
        """Wait until a value, which otherwise falls steadily, rises: such as the rest of a lease that is renewed."""
        least = value()

        def has_risen() -> bool:
            nonlocal least
            now, before = value(), least
            least = min(now, before)
            return now > before

        self.until(has_risen, tag, what)

    def age(self, entry: Entry) -> float:
        """Seconds since an entry was written, by the clock of Redis."""
        seconds, micros = self.redis.time()
        return seconds + micros / 1e6 - entry.ms / 1000

    def transcript(self, tag: str) -> str:
        return "\n".join(map(str, self.entries(tag)))

    def assert_stays_below(self, tag: str, *whats: str, count: int, seconds: float = 0.4, **data: Any) -> None:
        """Assert that for some seconds there are fewer than ``count`` such entries."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            found = self.entries(tag, *whats, **data)
            assert len(found) < count, f"{count} x {'/'.join(whats)} {data or ''} came\n{self.transcript(tag)}"
            self.read(block=max(1, int(left * 1000)))

    def max_concurrency(self, tag: str, **data: Any) -> int:
        """The largest number of bodies that ran at once."""
        inside: dict[str, int] = {}
        most = 0
        for entry in self.entries(tag, "begin", "end", "killed"):
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

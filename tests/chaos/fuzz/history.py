"""The history of a run, in the order in which one server received it.

It is a list on a server of its own without faults. Each line is appended in one atomic step together with that
server's time. An entry is written after the lock was acquired and an exit before it is released, so with a correct lock
the lines show which caller was inside when.

Times in a line, unlike the server's, are `time.monotonic`: one clock for all processes of a host.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from time import monotonic as now
from typing import Any, NamedTuple, TypeAlias

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

KEY = "history"

APPEND = (
    "local time = redis.call('TIME') "
    "return redis.call('RPUSH', KEYS[1], string.format('%s%06d ', time[1], time[2]) .. ARGV[1])"
)


class Entry(NamedTuple):
    """A caller has acquired the lock."""

    worker: int
    caller: int
    hold: int
    """Counts what this caller acquired."""
    fence: int
    asked: float
    """Before `acquire`."""
    got: float
    """After it."""
    until: float
    """The end of its lease, as far as it knows; 0.0 if that is over already."""


class Exit(NamedTuple):
    """A caller has finished its section, and is about to release the lock."""

    worker: int
    caller: int
    hold: int
    left: float
    until: float
    """The latest end of its lease that it has known of."""
    lost: bool
    """What `grant.lost` says."""
    seen: float
    """After it said so."""


class Outcome(NamedTuple):
    """The release has returned or raised."""

    worker: int
    caller: int
    hold: int
    result: str
    at: float


RELEASED, LOST, UNREACHABLE = "released", "lost", "unreachable"
"""Outcomes: it returned, it raised LockLost, it raised LockBackendError."""


class Refused(NamedTuple):
    """`acquire` raised LockBackendError."""

    worker: int
    caller: int
    asked: float
    at: float
    error: str


class Failed(NamedTuple):
    """An unexpected exception, and the end of its caller."""

    worker: int
    caller: int
    error: str


class Signal(NamedTuple):
    """A signal to a worker."""

    worker: int
    what: str
    at: float
    """Before it is killed or stopped, after it goes on."""
    hit: bool = False
    """The worker held the lock at that moment, says the lock's server."""


KILL, STOP, RESUME = "kill", "stop", "resume"


class Mark(NamedTuple):
    """All workers are ready; or they are about to be ended."""

    what: str


BEGIN, END = "begin", "end"


class Stall(NamedTuple):
    """The machine didn't run this process, or any process."""

    begin: float
    end: float
    worker: int = 0
    """0 if the process of the nemesis had none, which stands for all. A process that is stopped notes a stall too."""

    @property
    def excuses(self) -> bool:
        """Whether it is long enough for a lease to end."""
        return self.end - self.begin > STALL


Line: TypeAlias = Entry | Exit | Outcome | Refused | Failed | Signal | Mark | Stall


class Record(NamedTuple):
    time: float
    """The history's server's, in seconds."""
    line: Line


def encode(line: Line) -> str:
    return json.dumps([type(line).__name__, *line], separators=(",", ":"))


def decode(text: str) -> Record:
    time, _, rest = text.partition(" ")
    kind, *fields = json.loads(rest)
    return Record(int(time) / 1e6, _KINDS[kind](*fields))


_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Entry, Exit, Outcome, Refused, Failed, Signal, Mark, Stall)}


class History:
    """Appends lines, each exactly once, without timeouts and retries, however long the process is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        once = {"socket_timeout": None, "decode_responses": True}
        self._client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **once)
        self._aclient = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **once)

    def write(self, line: Line) -> None:
        self._client.eval(APPEND, 1, KEY, encode(line))

    async def awrite(self, line: Line) -> None:
        await self._aclient.eval(APPEND, 1, KEY, encode(line))

    def records(self) -> Iterable[Record]:
        return [decode(text) for text in self._client.lrange(KEY, 0, -1)]

    def close(self) -> None:
        self._client.close()

    async def aclose(self) -> None:
        await self._aclient.aclose()


LATE = 0.05
"""Seconds. A thread that wakes this late shows that the machine is too slow to measure the time to the next entry."""
STALL = 0.3
"""Seconds. A thread that wakes this late shows that the machine stood still."""


def watch(history: History, over: threading.Event, worker: int = 0) -> None:
    """Record when the machine doesn't run this process: then neither a late entry nor the end of a lease is a
    violation."""
    last = now()
    while not over.wait(0.02):
        woke = now()
        if woke - last > LATE:
            history.write(Stall(last, woke, worker))
        last = woke  # before the write, which a machine without turns delays too

"""What happened, in the order in which one server heard of it.

The journal is a list on a server of its own, which nobody hurts. Every line is appended in one atomic step together
with that server's time. An entry is written after the lock was acquired and an exit before it is released, so with a
right lock the lines tell who was inside when.

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

KEY = "journal"

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
    """It has done its work, and is about to release the lock."""

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


class Told(NamedTuple):
    """The release has returned or raised."""

    worker: int
    caller: int
    hold: int
    outcome: str
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
    """An exception that nobody expects, and the end of its caller."""

    worker: int
    caller: int
    error: str


class Signal(NamedTuple):
    """What was done to a worker."""

    worker: int
    what: str
    at: float
    """Before it is killed or stopped, after it goes on."""
    hit: bool = False
    """The worker held the lock at that moment, says the lock's server."""


KILL, STOP, GO_ON = "kill", "stop", "go on"


class Mark(NamedTuple):
    """All workers are ready; or they are about to be told that it is over."""

    what: str


BEGIN, END = "begin", "end"


class Stall(NamedTuple):
    """The machine stood still: nobody ran meanwhile, and nobody is to blame for what that leads to."""

    begin: float
    end: float
    worker: int = 0
    """It left this one alone without a turn; 0 is everybody. Who is stopped notes that too."""


Line: TypeAlias = Entry | Exit | Told | Refused | Failed | Signal | Mark | Stall


class Record(NamedTuple):
    time: float
    """The journal's server's, in seconds."""
    line: Line


def spell(line: Line) -> str:
    return json.dumps([type(line).__name__, *line], separators=(",", ":"))


def read(text: str) -> Record:
    time, _, rest = text.partition(" ")
    kind, *fields = json.loads(rest)
    return Record(int(time) / 1e6, _KINDS[kind](*fields))


_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Entry, Exit, Told, Refused, Failed, Signal, Mark, Stall)}


class Journal:
    """Appends lines, each exactly once: nothing here gives up or tries again, however long its process is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        once = {"socket_timeout": None, "decode_responses": True}
        self._client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **once)
        self._aclient = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **once)

    def write(self, line: Line) -> None:
        self._client.eval(APPEND, 1, KEY, spell(line))

    async def awrite(self, line: Line) -> None:
        await self._aclient.eval(APPEND, 1, KEY, spell(line))

    def records(self) -> Iterable[Record]:
        return [read(text) for text in self._client.lrange(KEY, 0, -1)]

    def close(self) -> None:
        self._client.close()

    async def aclose(self) -> None:
        await self._aclient.aclose()


STALL = 0.3
"""Who sleeps for a moment and wakes so many seconds later is on a machine that stood still."""


def watch(journal: Journal, over: threading.Event, worker: int = 0) -> None:
    """Notes whenever the machine stands still: it is no fault of a lock's that leases end then."""
    last = now()
    while not over.wait(0.02):
        if now() - last > STALL:
            journal.write(Stall(last, now(), worker))
        last = now()

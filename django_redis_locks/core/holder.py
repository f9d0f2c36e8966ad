"""Who holds a lock, as people see it: in a refusal, in the admin, on the command line. Never in an HTTP answer."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from .replies import parse_json
from .text import escape_unprintable

FIELDS = ("host", "pid", "thread", "name")
"""What ``METADATA`` may name."""

LONGEST_FIELD: Final = 255
"""Characters that are shown of a field."""

LARGEST_PID: Final = 2**32


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, read from the store.

    Attributes:
        host, pid, thread, name: as far as ``METADATA`` lets them be stored; the thread is a task's name in asyncio.
        fence: the fencing token of the hold.
        since: when it was acquired, in seconds since 1970 on the store's clock.
        lease_left: seconds until the lease ends, if nobody extends it.
    """

    fence: int
    since: float
    lease_left: float
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        who = self.host or "somebody"
        if self.pid is not None:
            who += f" pid {self.pid}"
        if self.thread is not None:
            who += f" {self.thread}"
        return who


def read(text: str, *, fence: int, since: float, lease_left: float) -> Holder:
    """The holder out of what ``describe`` wrote; unknown or broken descriptions leave the fields empty."""
    return Holder(fence, since, lease_left, **_parse(text))


@lru_cache(maxsize=512)
def _parse(text: str) -> dict[str, Any]:
    """Who waits reads the same description again and again."""
    try:
        values = parse_json(text or "[]")
    except ValueError:
        values = []
    return fields_of(values)


def fields_of(values: Any) -> dict[str, Any]:
    """What an array in the order of FIELDS says; what isn't of its field's kind is left out. Whoever may write to the store
    may have written anything: what is shown of it neither ends a line nor colours it."""
    about: dict[str, Any] = {}
    for field, value in zip(FIELDS, values if isinstance(values, list) else [], strict=False):
        if field != "pid" and type(value) is str:
            about[field] = escape_unprintable(value[:LONGEST_FIELD])
        elif field == "pid" and type(value) is int and 0 < value < LARGEST_PID:
            about[field] = value
    return about


@lru_cache(maxsize=512)
def describe(pid: int, thread: str, name: str, fields: tuple[str, ...]) -> str:
    """What the store keeps of the holder: a JSON array in the order of FIELDS, null for what isn't wanted; nothing if
    nothing is. An array, because the names of the fields would cost more memory than the values."""
    if not fields:
        return ""
    about = {"host": socket.gethostname(), "pid": pid, "thread": thread[:40], "name": name[:80]}
    values = [about[field] if field in fields else None for field in FIELDS]
    return json.dumps(values, separators=(",", ":"))

"""Descriptions of holders, for errors, the admin and the command line. They are never sent in an HTTP response."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from .replies import parse_json
from .text import escape_unprintable

FIELDS = ("host", "pid", "thread", "name")
"""The fields that ``METADATA`` may list."""

LONGEST_FIELD: Final = 255
"""The number of characters of a field that are shown."""

LARGEST_PID: Final = 2**32


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, read from the store.

    Attributes:
        host, pid, thread, name: the description of the holder, None for fields that ``METADATA`` excludes. In asyncio
            the thread is the name of the task.
        fence: the fencing token of the hold.
        since: when it was acquired, in seconds since 1970 on the store's clock.
        lease_left: seconds until the lease ends, unless it is extended.
    """

    fence: int
    since: float
    lease_left: float
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        text = self.host or "unknown host"
        if self.pid is not None:
            text += f" pid {self.pid}"
        if self.thread is not None:
            text += f" {self.thread}"
        return text


def read(text: str, *, fence: int, since: float, lease_left: float) -> Holder:
    """Return the holder from a text of ``describe``. Unknown or malformed fields are None."""
    return Holder(fence, since, lease_left, **_parse(text))


@lru_cache(maxsize=512)
def _parse(text: str) -> dict[str, Any]:
    """Parse a description. Cached, because waiters read the same one repeatedly."""
    try:
        values = parse_json(text or "[]")
    except ValueError:
        values = []
    return fields_of(values)


def fields_of(values: Any) -> dict[str, Any]:
    """Return the fields of an array in the order of FIELDS, without values of a wrong type. Texts are escaped, because
    any client of the store may have written them."""
    holder: dict[str, Any] = {}
    for field, value in zip(FIELDS, values if isinstance(values, list) else [], strict=False):
        if field != "pid" and type(value) is str:
            holder[field] = escape_unprintable(value[:LONGEST_FIELD])
        elif field == "pid" and type(value) is int and 0 < value < LARGEST_PID:
            holder[field] = value
    return holder


@lru_cache(maxsize=512)
def describe(pid: int, thread: str, name: str, fields: tuple[str, ...]) -> str:
    """Return the description of a holder as it is stored: a JSON array in the order of FIELDS, with null for excluded
    fields, or "" if all are excluded. Names of fields would need more memory than their values."""
    if not fields:
        return ""
    holder = {"host": socket.gethostname(), "pid": pid, "thread": thread[:40], "name": name[:80]}
    values = [holder[field] if field in fields else None for field in FIELDS]
    return json.dumps(values, separators=(",", ":"))

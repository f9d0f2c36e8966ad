"""Descriptions of holders, for errors, the admin and the command line. They are never sent in an HTTP response."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, Final

from .replies import parse_json
from .text import escape_unprintable

FIELDS = ("host", "pid", "thread", "name")
"""The fields that ``METADATA`` may list."""

LONGEST_FIELD: Final = 255
"""The number of characters of a field that are shown."""

LARGEST_PID: Final = 2**32

DETACHED: Final = "detached"
"""The name of the thread while a hold is on its way to another process."""

ALL_PERMITS: Final = 1_000_000_000
"""The permits of a read-write lock, which a writer takes. All versions must agree: with another number two writers would
fit."""

LONGEST_NOTE: Final = 200
"""The number of bytes of a note, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, read from the store.

    Attributes:
        host, pid, thread, name: the description of the holder, None for fields that ``METADATA`` excludes. In asyncio
            the thread is the name of the task.
        fence: the fencing token of the hold.
        since: when it was acquired, in seconds since 1970 on the store's clock.
        lease_left: seconds until the lease ends, unless it is extended.
        max_hold: the ``max_hold`` that its call site gave, in seconds, infinity for ever; None if it gave none.
        note: the ``note`` of its call site, with control characters escaped; None if it gave none.
        permits: the number of permits that it has of a semaphore, or of a read-write lock, whose readers have 1 and whose
            writer has all; 1 for other locks.
    """

    fence: int
    since: float
    lease_left: float
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    name: str | None = None
    max_hold: float | None = None
    note: str | None = None
    permits: int = 1

    @property
    def has_all_permits(self) -> bool:
        """Whether it is the writer of a read-write lock."""
        return self.permits >= ALL_PERMITS

    def __str__(self) -> str:
        text = self.host or "unknown host"
        if self.pid is not None:
            text += f" pid {self.pid}"
        if self.thread is not None:
            text += f" {self.thread}"
        return f"{text} ({self.note})" if self.note else text


def read(text: str, *, fence: int, since: float, lease_left: float, permits: int = 1) -> Holder:
    """Return the holder from a text of ``describe``. Unknown or malformed fields are None."""
    return Holder(fence, since, lease_left, **_parse(text), permits=permits)


@lru_cache(maxsize=512)
def _parse(text: str) -> dict[str, Any]:
    """Parse a description. Cached, because waiters read the same one repeatedly."""
    try:
        values = parse_json(text or "[]")
    except ValueError:
        values = []
    return fields_of(values)


def fields_of(values: Any) -> dict[str, Any]:
    """Return the fields of an array in the order of FIELDS, and those of the object after them, without values of a
    wrong type. Texts are escaped, because any client of the store may have written them."""
    holder: dict[str, Any] = {}
    if not isinstance(values, list):
        return holder
    for field, value in zip(FIELDS, values, strict=False):
        if field != "pid" and type(value) is str:
            holder[field] = escape_unprintable(value[:LONGEST_FIELD])
        elif field == "pid" and type(value) is int and 0 < value < LARGEST_PID:
            holder[field] = value
    extras = values[len(FIELDS)] if len(values) > len(FIELDS) else None
    if isinstance(extras, dict):
        max_hold, note = extras.get("max_hold"), extras.get("note")
        if type(max_hold) in (int, float):
            holder["max_hold"] = inf if max_hold == -1 else max_hold
        if type(note) is str:
            holder["note"] = escape_unprintable(note[:LONGEST_FIELD])
    return holder


def validate_note(note: object) -> str:
    """Return the note of a call site.

    Raises:
        ValueError: it is no text, or too long.
    """
    if isinstance(note, str):
        with suppress(UnicodeEncodeError):
            if len(note.encode()) <= LONGEST_NOTE:
                return note
    raise ValueError(f"note must be a str of at most {LONGEST_NOTE} bytes in UTF-8, not {note!r}")


def extras(max_hold: float | None, note: str | None) -> str:
    """Return what a call site adds to the description of its holder, as a JSON object; "" for nothing."""
    given: dict[str, float | str] = {}
    if max_hold is not None:
        given["max_hold"] = -1 if max_hold == inf else max_hold
    if note:
        given["note"] = note
    return json.dumps(given, separators=(",", ":")) if given else ""


@lru_cache(maxsize=512)
def describe(pid: int | None, thread: str, name: str, fields: tuple[str, ...], extras: str = "") -> str:
    """Return the description of a holder as it is stored: a JSON array in the order of FIELDS, with null for excluded
    fields, and the result of ``extras``, if any; or "" if there is neither. Names of fields would need more memory than
    their values."""
    if not fields and not extras:
        return ""
    holder = {"host": socket.gethostname(), "pid": pid, "thread": thread[:40], "name": name[:80]}
    values = [holder[field] if field in fields else None for field in FIELDS]
    text = json.dumps(values, separators=(",", ":"))
    return f"{text[:-1]},{extras}]" if extras else text

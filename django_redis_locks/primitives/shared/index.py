"""Reads the index of an alias, and inspects the locks in it, as programs.

The index is a hint: it may be older than a crash of the server, and has no locks of aliases without an index. The
holder is known from the lock itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.commands import PARSE_ERRORS, Command
from ...core.keys import waiters_of
from ...core.replies import parse_array, parse_int, parse_text
from ..lock import KIND, parse_inspected_lock
from .requests import ForeignValue
from .retry import retry_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.commands import Program
    from ...core.holder import Holder

PAGE_SIZE: Final = 1000
"""Entries per request; Lua returns no more than some thousand values."""

INSPECT_BATCH: Final = 200
"""Locks inspected by one script, which blocks the server for less than a millisecond."""


class Entry(NamedTuple):
    """An entry of the index: a lock by its spelled key, and the end of its lease in seconds since 1970."""

    lock: str
    ends: float


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of an index, the total number of entries, and the store's clock in seconds since 1970."""

    at: float
    total: int
    found: list[Entry]


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A record, with the fields as JSON. ``listed`` says where, "" if nowhere."""

    lease_left: float
    version: int
    fields: str
    listed: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lives under the key of a lock: a holder, a record, nothing, or something else; how many queues of processes
    wait for it; and the store's clock, in seconds since 1970."""

    waiting: int
    found: Holder | ListedRecord | ForeignValue | None
    at: float


def entries(listing: str, which: str, first: int, most: int, *, last_first: bool = False) -> Program[Entries]:
    """Entries of one index by the end of their leases: those ``"held"``, or those ``"ended"`` without a release."""
    found: list[Entry] = []
    while True:
        args = (which, first + len(found), min(PAGE_SIZE, most - len(found)), int(last_first))
        page: Entries = (yield from retry_command(Command("index/page", (listing,), args, _parse_page)))[0]
        found += page.found
        if len(page.found) < args[2] or len(found) >= most:
            return Entries(page.at, page.total, found)


def inspecting_many(locks: Sequence[str]) -> Program[list[Inspection]]:
    """Inspect these locks, by their spelled keys."""
    found: list[Inspection] = []
    for start in range(0, len(locks), INSPECT_BATCH):
        some = locks[start : start + INSPECT_BATCH]
        keys = (*some, *map(waiters_of, some))
        reply: list[Inspection] = (
            yield from retry_command(Command("index/inspect", keys, (KIND,), _parse_inspections))
        )[0]
        if len(reply) != len(some):
            raise ValueError(f"{len(some)} locks were asked for, and {len(reply)} answered")
        found += reply
    return found


def _parse_page(reply: Any) -> Entries:
    now, total, *pairs = parse_array(reply)
    found = [Entry(parse_text(lock), float(ends) / 1000) for lock, ends in zip(pairs[::2], pairs[1::2], strict=True)]
    return Entries(parse_int(now) / 1000, parse_int(total), found)


def _parse_inspections(reply: Any) -> list[Inspection]:
    now, *each = parse_array(reply)
    return [_parse_inspection(parse_int(now) / 1000, *parse_array(look)) for look in each]


def _parse_inspection(now: float, waiting: Any, *verdict: Any) -> Inspection:
    found: Holder | ListedRecord | ForeignValue | None
    try:
        found = _parse_record(*verdict[1:]) if verdict and verdict[0] == 1 else parse_inspected_lock(verdict)
    except PARSE_ERRORS:  # it spoils no page
        found = ForeignValue("what can't be read")
    return Inspection(parse_int(waiting), found, now)


def _parse_record(left: Any, version: Any, fields: Any, listed: Any) -> ListedRecord:
    return ListedRecord(parse_int(left) / 1000, parse_int(version), parse_text(fields), parse_text(listed))

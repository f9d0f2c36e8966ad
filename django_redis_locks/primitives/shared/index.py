"""Programs that read the index of an alias, and inspect the locks in it.

The index is a hint: after a crash of the server it may be out of date, and aliases may have no index. The lock itself
decides whether it is held, and by which holder.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.commands import PARSE_ERRORS, Command
from ...core.keys import ends_of, waiters_of
from ...core.replies import parse_array, parse_int, parse_text
from ...core.steps.indexes import UNCLEAR, InspectLocks, ReadIndex
from .mutex_steps import KIND, parse_inspected_lock
from .permit_steps import PermitState, parse_inspect
from .requests import ForeignValue
from .retry import retry_command, retry_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.commands import Program
    from ...core.holder import Holder

PAGE_SIZE: Final = 1000
"""The number of entries per request. A Lua script can return a few thousand values at most."""

INSPECT_BATCH: Final = 200
"""The number of locks per script call, which blocks the server for less than a millisecond."""


class Entry(NamedTuple):
    """An entry of the index: the store's key of a lock, and the end of its lease in seconds since 1970."""

    lock: str
    ends: float


@dataclass(frozen=True, slots=True)
class Entries:
    """A part of the entries of an index.

    Attributes:
        at: the store's clock, in seconds since 1970.
        total: the number of all entries.
        found: the entries.
    """

    at: float
    total: int
    found: list[Entry]


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A record under an inspected key.

    Attributes:
        lease_left: seconds until its lease ends.
        version: its version.
        fields: its fields, as JSON.
        listed: the index that lists it: "held", "queued" or "" for none.
    """

    lease_left: float
    version: int
    fields: str
    listed: str


@dataclass(frozen=True, slots=True)
class FoundLatch:
    """A latch under an inspected key.

    Attributes:
        seconds_left: seconds until it ends if it isn't changed.
        left: what is left of its count.
    """

    seconds_left: float
    left: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of inspecting the key of a lock.

    Attributes:
        waiting: the number of processes' queues that wait for the lock.
        found: the holder, a record, a latch, permits, another value, or None if the lock is free.
        at: the store's clock, in seconds since 1970.
        unclear: only a minority of several servers has the lock.
    """

    waiting: int
    found: Holder | ListedRecord | FoundLatch | PermitState | ForeignValue | None
    at: float
    unclear: bool = False


def entries(index: str, which: str, first: int, most: int, *, last_first: bool = False) -> Program[Entries]:
    """Read entries of an index, sorted by the end of their leases.

    Args:
        listing: the key of the index.
        which: "held", or "ended" for locks whose lease ended without a release.
        first: the number of entries to skip.
        most: the largest number of entries to return.
        last_first: sort in descending order.
    """
    found: list[Entry] = []
    while True:
        args = ReadIndex(which, first + len(found), min(PAGE_SIZE, most - len(found)), int(last_first))
        page: Entries = (yield from retry_command(Command("index/page", (index,), args, _parse_page)))[0]
        found += page.found
        if len(page.found) < args.most or len(found) >= most:
            return Entries(page.at, page.total, found)


def all_entries(
    parts: Sequence[tuple[str, str]],
    unreachable: list[str],
    each: int,
    most: float = inf,
    *,
    last_first: bool = False,
) -> Program[list[Entries]]:
    """Read the entries of several indexes, all of them at once, each sorted by the end of the leases.

    Args:
        parts: the key of each index, and which of its entries, as of ``entries``.
        unreachable: gets the reasons if a part of the store can't be reached. Its indexes count as empty.
        each: the largest number of entries to return from each index.
        most: the number of entries after which no more are read.
        last_first: sort in descending order.
    """
    size = min(PAGE_SIZE, each, max(1, 4 * most // len(parts)))
    found = [Entries(0.0, 0, []) for _ in parts]
    unread = list(range(len(parts)))
    while unread and sum(len(part.found) for part in found) < most:
        steps = [ReadIndex(parts[n][1], len(found[n].found), int(size), int(last_first)) for n in unread]
        commands = [
            Command("index/page", parts[n][:1], step, _parse_page) for n, step in zip(unread, steps, strict=True)
        ]
        replies: list[Entries | None] = yield from retry_commands(commands, unreachable=unreachable)
        pages = {n: page for n, page in zip(unread, replies, strict=True) if page is not None}
        for n, page in pages.items():
            found[n] = Entries(page.at, page.total, found[n].found + page.found)
        unread = [n for n, page in pages.items() if len(page.found) == size > 0]
        unread = [n for n in unread if len(found[n].found) < each]
    return [Entries(part.at, part.total, part.found[:each]) for part in found]


def inspecting(lock: str) -> Program[Inspection]:
    """Inspect one lock, given by its key in the store."""
    (inspection,), _, _ = yield from retry_command(_inspect([lock]))
    return inspection  # type: ignore[no-any-return]


def inspecting_many(locks: Sequence[str], unreachable: list[str]) -> Program[list[Inspection | None]]:
    """Inspect these locks, given by their keys in the store. The result has None for those in a part of the store that can't
    be reached; ``unreachable`` gets the reasons."""
    buckets: dict[str, list[int]] = {}
    for number, lock in enumerate(locks):
        buckets.setdefault(lock.partition("}")[0], []).append(number)
    batches = [
        numbers[begin : begin + INSPECT_BATCH]
        for numbers in buckets.values()
        for begin in range(0, len(numbers), INSPECT_BATCH)
    ]
    commands = [_inspect([locks[number] for number in batch]) for batch in batches]
    replies = yield from retry_commands(commands, unreachable=unreachable)
    found: list[Any] = [None] * len(locks)
    for batch, reply in zip(batches, replies, strict=True):
        for number, inspection in zip(batch, reply or (), strict=reply is not None):
            found[number] = inspection
    return found


def _inspect(locks: Sequence[str]) -> Command[list[Inspection]]:
    keys = (*locks, *map(waiters_of, locks), *map(ends_of, locks))

    def parse(reply: Any) -> list[Inspection]:
        now, *inspections = parse_array(reply)
        if len(inspections) != len(locks):
            raise ValueError(f"{len(locks)} locks were inspected, and the reply has {len(inspections)}")
        return [_parse_inspection(parse_int(now) / 1000, *parse_array(inspection)) for inspection in inspections]

    return Command("index/inspect", keys, InspectLocks(KIND), parse)


def _parse_page(reply: Any) -> Entries:
    now, total, *pairs = parse_array(reply)
    found = [Entry(parse_text(lock), float(ends) / 1000) for lock, ends in zip(pairs[::2], pairs[1::2], strict=True)]
    return Entries(parse_int(now) / 1000, parse_int(total), found)


def _parse_inspection(now: float, waiting: Any, *verdict: Any) -> Inspection:
    found: Holder | ListedRecord | FoundLatch | PermitState | ForeignValue | None
    unclear = bool(verdict) and verdict[0] == UNCLEAR
    if unclear:
        verdict = (0, *verdict[1:])
    try:
        kind, *details = verdict or [0]
        found = _parsers[kind](*details) if kind in _parsers else parse_inspected_lock(verdict)
    except PARSE_ERRORS:  # one malformed value must not fail the whole page
        found = ForeignValue("an unreadable value")
    return Inspection(parse_int(waiting), found, now, unclear)


def _parse_permits(reply: Any) -> PermitState | ForeignValue | None:
    found = parse_inspect(reply)
    return None if isinstance(found, PermitState) and not (found.holders or found.set) else found


def _parse_record(left: Any, version: Any, fields: Any, listed: Any) -> ListedRecord:
    return ListedRecord(parse_int(left) / 1000, parse_int(version), parse_text(fields), parse_text(listed))


def _parse_latch(left_ms: Any, left: Any) -> FoundLatch:
    return FoundLatch(parse_int(left_ms) / 1000, parse_int(left))


_parsers: dict[Any, Callable[..., ListedRecord | FoundLatch | PermitState | ForeignValue | None]] = {
    1: _parse_record,
    2: _parse_latch,
    3: _parse_permits,
}
"""The parsers of the replies for what is no lock, by their first element."""

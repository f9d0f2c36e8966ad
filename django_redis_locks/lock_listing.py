"""Programs that list, find and count the locks of an alias, and their results.

The index of the alias names the locks; each of them is then read, because the index may be out of date. A search, and
most sort orders, read all locks, at most the ``MOST`` locks whose leases end first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .core.arguments import validate_choice
from .core.digests import digest_of
from .core.keys import escaped_in, unescape
from .primitives.shared.index import Entries, all_entries, entries, inspecting, inspecting_many
from .primitives.shared.lock_info import LockInfo, info_of
from .primitives.shared.record_values import queued_index

if TYPE_CHECKING:
    from .client import Locks
    from .core.commands import Program
    from .primitives.shared.index import Entry, Inspection

Choice: TypeAlias = Literal["held", "overdue", "expired", "queued", "all"]
"""Which locks are listed. ``"held"`` includes overdue locks, but no queued jobs."""

MOST: Final = 10_000
"""The largest number of locks of an alias that are searched and sorted."""

LONGEST_PAGE: Final = 1000
"""The largest ``limit``."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list of locks.

    Attributes:
        rows: the locks, without those that were released while the page was read.
        total: the number of all locks in this state with matching keys.
        next: the cursor of the next page; None on the last page.
        partial: True if there are more than ``MOST`` locks; the others were neither searched nor sorted.
        indexed: False if ``INDEX`` is off for this alias, so that no locks are listed.
        unreachable: the nodes of a Cluster that can't be reached, each with the reason. Their locks are missing.
    """

    rows: list[LockInfo]
    total: int
    next: int | None
    partial: bool = False
    indexed: bool = True
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of locks of an alias.

    Attributes:
        held: held locks, and running jobs.
        expired: leases that ended without a release within the last hour.
        queued: jobs that haven't started.
        unreachable: the nodes of a Cluster that can't be reached, each with the reason. Their locks aren't counted.
    """

    held: int
    expired: int
    queued: int = 0
    unreachable: tuple[str, ...] = ()


STATES: dict[str, tuple[str, ...]] = {
    "held": ("held",),
    "overdue": ("held",),
    "expired": ("ended",),
    "queued": ("queued",),
    "all": ("queued", "held", "ended"),
}
"""The parts of the index to read for each choice, in the order in which a lock moves through them: a lock that moves
during the reading is found in the later part."""


def _acquired(info: LockInfo) -> float:
    """Return when a lock was acquired, for the sort order: unlike the time since then, it is the same for each reply."""
    if info.holders:
        return min(holder.since for holder in info.holders)
    return inf if info.since is None else info.since.timestamp()


COLUMNS: dict[str, Callable[[LockInfo], Any]] = {
    "lease_left": lambda info: info.lease_left or 0.0,
    "key": lambda info: info.key,
    "name": lambda info: info.name,
    "held_for": lambda info: -_acquired(info),
    "fence": lambda info: info.fence or 0,
    "waiting": lambda info: info.waiting,
    "holder": lambda info: str(info.holder or ""),
}

_ENTRY_COLUMNS: dict[str, Callable[[Entry], Any]] = {
    "lease_left": lambda entry: entry.ends,
    "key": lambda entry: unescape(escaped_in(entry.lock)),
}
"""The columns by which index entries can be sorted before their locks are read."""


def listing(client: Locks, match: str, state: Choice, order: str, limit: int, cursor: int) -> Program[Page]:
    """Return a page of locks.

    Raises:
        ValueError: an argument is out of its range.
    """
    column, descending = order.removeprefix("-"), order.startswith("-")
    validate_choice(state, "state", STATES)
    validate_choice(column, "order", COLUMNS)
    _check_range("limit", limit, 1, LONGEST_PAGE)
    _check_range("cursor", cursor, 0, sys.maxsize)
    if not client.settings.index:
        return Page([], 0, None, indexed=False)
    unreachable: list[str] = []
    page = yield from _page(client, match, state, column, descending, limit, cursor, unreachable)
    return replace(page, unreachable=tuple(unreachable))


def _page(
    client: Locks,
    match: str,
    state: Choice,
    column: str,
    descending: bool,
    limit: int,
    cursor: int,
    unreachable: list[str],
) -> Program[Page]:
    parts = [index_part for part in STATES[state] for index_part in _index_parts(client, part)]
    if state in ("held", "expired", "queued") and not match and column == "lease_left":  # the order of the indexes
        page = yield from _first_entries(parts, unreachable, cursor, limit, descending)
        rows = yield from _reading(client, unreachable, page.found, page.at)
        return Page(_filter_state(rows, state), page.total, _next(cursor, limit, page.total))
    most = MOST * len(STATES[state])
    pages = yield from all_entries(parts, unreachable, MOST, most)
    entry_of = {entry.lock: entry for page in pages for entry in page.found}
    now = max(page.at for page in pages)
    found = list(entry_of.values())
    partial = any(page.total > len(page.found) for page in pages)
    if len(found) > most:
        found = sorted(found, key=lambda entry: entry.ends)[:most]
        partial = True
    if match:
        found = list(filter(_matcher(match), found))
    sort_key = _ENTRY_COLUMNS.get(column)
    if sort_key is not None and state != "overdue":  # only the locks of the page need to be read
        found.sort(key=sort_key, reverse=descending)
        rows = yield from _reading(client, unreachable, found[cursor : cursor + limit], now)
        return Page(_filter_state(rows, state), len(found), _next(cursor, limit, len(found)), partial)
    rows = _filter_state((yield from _reading(client, unreachable, found, now)), state)
    rows.sort(key=COLUMNS[column], reverse=descending)
    return Page(rows[cursor : cursor + limit], len(rows), _next(cursor, limit, len(rows)), partial)


def _first_entries(
    parts: list[tuple[str, str]], unreachable: list[str], cursor: int, limit: int, descending: bool
) -> Program[Entries]:
    """Return the entries of one page, in the order of the indexes."""
    if len(parts) == 1:
        return (yield from entries(*parts[0], cursor, limit, last_first=descending))
    pages = yield from all_entries(parts, unreachable, cursor + limit, last_first=descending)
    found = sorted((entry for page in pages for entry in page.found), key=lambda entry: entry.ends, reverse=descending)
    total = sum(page.total for page in pages)
    return Entries(max(page.at for page in pages), total, found[cursor : cursor + limit])


def _index_parts(client: Locks, part: str) -> list[tuple[str, str]]:
    """Return the indexes that contain a part, each with the name of the part there."""
    if part == "queued":
        return [(queued_index(index), "held") for index in client.indexes]
    return [(index, part) for index in client.indexes]


def _next(cursor: int, limit: int, total: int) -> int | None:
    return cursor + limit if cursor + limit < total else None


def _filter_state(rows: list[LockInfo], state: Choice) -> list[LockInfo]:
    """Return the rows in this state, without locks that were released since the index was read."""
    held = ("held", "overdue", "foreign", "unclear")
    wanted = {"held": held, "all": (*held, "expired", "queued")}
    return [row for row in rows if row.state in wanted.get(state, (state,))]


_is_digest = re.compile(r"[0-9a-f]{16}").fullmatch


def _matcher(match: str) -> Callable[[Entry], bool]:
    """Return the function that decides whether the key of an index entry matches."""
    pattern = match.casefold()
    if _is_digest(pattern):
        return lambda entry: (
            pattern in (key := unescape(escaped_in(entry.lock))).casefold() or digest_of(key) == pattern
        )
    if not any(wildcard in pattern for wildcard in "*?"):
        return lambda entry: pattern in unescape(escaped_in(entry.lock)).casefold()
    pattern = pattern.replace("[", "[[]")  # fnmatch would take brackets for a character class
    return lambda entry: fnmatchcase(unescape(escaped_in(entry.lock)).casefold(), pattern)


def _reading(client: Locks, unreachable: list[str], found: list[Entry], now: float) -> Program[list[LockInfo]]:
    inspections = yield from inspecting_many([entry.lock for entry in found], unreachable)
    return [
        _info(client, unescape(escaped_in(entry.lock)), inspection, now, entry.ends)
        for entry, inspection in zip(found, inspections, strict=True)
        if inspection is not None
    ]


def finding(client: Locks, key: str) -> Program[LockInfo]:
    """Return one lock, held or free."""
    lock = client.listed(key).keys.lock
    inspection = yield from inspecting(lock)
    return _info(client, unescape(escaped_in(lock)), inspection)


def _info(client: Locks, key: str, inspection: Inspection, now: float = 0.0, ends: float = 0.0) -> LockInfo:
    return info_of(client.settings.alias, key, inspection, client.max_hold, now, ends)


def counting(client: Locks) -> Program[Counts]:
    """Return the numbers of locks."""
    totals = dict.fromkeys(STATES["all"], 0)
    unreachable: list[str] = []
    if client.settings.index:
        parts = [(kind, part) for kind in totals for part in _index_parts(client, kind)]
        pages = yield from all_entries([part for _, part in parts], unreachable, 0)
        for (kind, _), page in zip(parts, pages, strict=True):
            totals[kind] += page.total
    return Counts(totals["held"], totals["ended"], totals["queued"], tuple(unreachable))


def _check_range(what: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        bounds = f"from {least} on" if most == sys.maxsize else f"from {least} to {most}"
        raise ValueError(f"{what} is a whole number {bounds}, not {value!r}")

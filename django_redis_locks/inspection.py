"""The locks of an alias as values: lists, single locks, counts, forced release. The admin and the command use only
this.

A list comes from the index of the alias, which is a hint; each listed lock is then read. Searching, and sorting by most
columns, needs all locks, and covers the ``MOST`` locks whose leases end first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .core.digests import digest_of
from .core.keys import escaped_in, readable
from .core.runner import arun, run
from .handler import DEFAULT, locks
from .primitives.shared.index import entries, inspecting_many
from .primitives.shared.lock_info import LockInfo, State, info_of
from .primitives.shared.record_values import queued_index

if TYPE_CHECKING:
    from .client import Locks
    from .core.commands import Program
    from .primitives.shared.index import Entry, Inspection

__all__ = [
    "COLUMNS",
    "LONGEST_PAGE",
    "MOST",
    "STATES",
    "Choice",
    "Counts",
    "LockInfo",
    "Page",
    "State",
    "acounts",
    "afind",
    "aforce_release",
    "aheld",
    "counts",
    "find",
    "force_release",
    "held",
]

Choice: TypeAlias = Literal["held", "overdue", "expired", "queued", "all"]
"""Which locks are listed. ``"held"`` includes overdue locks, but no queued jobs."""

MOST: Final = 10_000
"""At most this number of locks of an alias are searched and sorted."""

LONGEST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the locks of an alias.

    Attributes:
        rows: the locks. Those that were released while the page was read are left out.
        total: the number of all locks in this state with matching keys.
        next: the cursor of the next page; None after the last one.
        partial: True if there are more than ``MOST`` locks; the others were neither searched nor sorted.
        indexed: False if ``INDEX`` is off for this alias, so that no locks are listed.
    """

    rows: list[LockInfo]
    total: int
    next: int | None
    partial: bool = False
    indexed: bool = True


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of locks of an alias.

    Attributes:
        held: locks that are held, and jobs that run.
        expired: leases that ended without a release within the last hour.
        queued: jobs that wait to begin.
    """

    held: int
    expired: int
    queued: int = 0


def held(
    using: str = DEFAULT,
    *,
    match: str = "",
    state: Choice = "held",
    order: str = "lease_left",
    limit: int = 50,
    cursor: int = 0,
) -> Page:
    """List the locks of an alias.

    Args:
        using: the alias.
        match: a part of the key, or a pattern for all of it with ``*`` and ``?``, both without regard to case; or the
            digest of a key in the log.
        state: ``"held"``, ``"overdue"``, ``"expired"``, ``"queued"`` or ``"all"``.
        order: ``"lease_left"``, ``"key"``, ``"name"``, ``"held_for"``, ``"fence"``, ``"waiting"`` or ``"holder"``; with
            a minus in front, descending.
        limit: the largest number of locks on the page, 1 to 1 000.
        cursor: where the page begins: 0, or ``next`` of the previous page.

    Raises:
        ValueError: an argument out of its range.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(_listing(client, match, state, order, limit, cursor), client.engine)


async def aheld(
    using: str = DEFAULT,
    *,
    match: str = "",
    state: Choice = "held",
    order: str = "lease_left",
    limit: int = 50,
    cursor: int = 0,
) -> Page:
    """As ``held``."""
    client = locks[using]
    return await arun(_listing(client, match, state, order, limit, cursor), client.engine)


def find(key: str, using: str = DEFAULT) -> LockInfo:
    """Read one lock, held or free.

    Args:
        key: the filled key.
        using: the alias.

    Raises:
        LockKeyError: the key is empty.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(_finding(client, key), client.engine)


async def afind(key: str, using: str = DEFAULT) -> LockInfo:
    """As ``find``."""
    client = locks[using]
    return await arun(_finding(client, key), client.engine)


def counts(using: str = DEFAULT) -> Counts:
    """Count the locks of an alias.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(_counting(client), client.engine)


async def acounts(using: str = DEFAULT) -> Counts:
    """As ``counts``."""
    client = locks[using]
    return await arun(_counting(client), client.engine)


def force_release(
    key: str, *, using: str = DEFAULT, fence: int | None = None, reason: str = "", actor: str = ""
) -> bool:
    """Release a lock that another holder has. Its holder continues until it notices, with its next renewal.

    Args:
        key: the filled key.
        using: the alias.
        fence: release only the hold with this fence, not a later one.
        reason: for the log and the signal.
        actor: the user or program that does it, for the log and the signal.

    Returns:
        Whether a lock was released.

    Raises:
        LockKeyError: the key is empty.
        LockBackendError: the store can't be reached, or refuses.
    """
    return locks[using].listed(key).force_release(reason, fence, actor)


async def aforce_release(
    key: str, *, using: str = DEFAULT, fence: int | None = None, reason: str = "", actor: str = ""
) -> bool:
    """As ``force_release``."""
    return await locks[using].listed(key).aforce_release(reason, fence, actor)


STATES: dict[str, tuple[str, ...]] = {
    "held": ("held",),
    "overdue": ("held",),
    "expired": ("ended",),
    "queued": ("queued",),
    "all": ("queued", "held", "ended"),
}
"""The parts of the index to read for each choice. A lock moves in this order, so one that moves meanwhile isn't
missed."""

COLUMNS: dict[str, Callable[[LockInfo], Any]] = {
    "lease_left": lambda info: info.lease_left or 0.0,
    "key": lambda info: info.key,
    "name": lambda info: info.name,
    "held_for": lambda info: info.held_for or 0.0,
    "fence": lambda info: info.fence or 0,
    "waiting": lambda info: info.waiting,
    "holder": lambda info: str(info.holder or ""),
}

_OF_ENTRIES: dict[str, Callable[[Entry], Any]] = {
    "lease_left": lambda entry: entry.ends,
    "key": lambda entry: readable(escaped_in(entry.lock)),
}
"""The columns that the index has."""


def _listing(client: Locks, match: str, state: Choice, order: str, limit: int, cursor: int) -> Program[Page]:
    column, backwards = order.removeprefix("-"), order.startswith("-")
    _one_of("state", state, STATES)
    _one_of("order", column, COLUMNS)
    _within("limit", limit, 1, LONGEST_PAGE)
    _within("cursor", cursor, 0, sys.maxsize)
    if not client.settings.index:
        return Page([], 0, None, indexed=False)
    parts = [listing for part in STATES[state] for listing in _listings(client, part)]
    if state in ("held", "expired", "queued") and not match and column == "lease_left" and len(parts) == 1:
        page = yield from entries(*parts[0], cursor, limit, last_first=backwards)  # the index is in this order
        rows = yield from _looking(client, page.found, page.at)
        return Page(_of_state(rows, state), page.total, _next(cursor, limit, page.total))
    read: dict[str, Entry] = {}
    partial, now = False, 0.0
    for listing, which in parts:
        page = yield from entries(listing, which, 0, MOST)
        read.update((entry.lock, entry) for entry in page.found)
        partial = partial or page.total > len(page.found)
        now = page.at
    found = list(read.values())
    if match:
        found = list(filter(_matching(match), found))
    by = _OF_ENTRIES.get(column)
    if by is not None and state != "overdue":  # only the locks of the page need to be read
        found.sort(key=by, reverse=backwards)
        rows = yield from _looking(client, found[cursor : cursor + limit], now)
        return Page(_of_state(rows, state), len(found), _next(cursor, limit, len(found)), partial)
    rows = _of_state((yield from _looking(client, found, now)), state)
    rows.sort(key=COLUMNS[column], reverse=backwards)
    return Page(rows[cursor : cursor + limit], len(rows), _next(cursor, limit, len(rows)), partial)


def _listings(client: Locks, part: str) -> list[tuple[str, str]]:
    """The indexes that contain a part, each with the name of the part there."""
    if part == "queued":
        return [(queued_index(listing), "held") for listing in client.listings]
    return [(listing, part) for listing in client.listings]


def _next(cursor: int, limit: int, total: int) -> int | None:
    return cursor + limit if cursor + limit < total else None


def _of_state(rows: list[LockInfo], state: Choice) -> list[LockInfo]:
    """The rows in this state, without locks that were released since the index was read."""
    held = ("held", "overdue", "foreign")
    wanted = {"held": held, "all": (*held, "expired", "queued")}
    return [row for row in rows if row.state in wanted.get(state, (state,))]


_digest = re.compile(r"[0-9a-f]{16}").fullmatch


def _matching(match: str) -> Callable[[Entry], bool]:
    pattern = match.casefold()
    if _digest(pattern):
        return lambda entry: (
            pattern in (key := readable(escaped_in(entry.lock))).casefold() or digest_of(key) == pattern
        )
    if not any(sign in pattern for sign in "*?"):
        return lambda entry: pattern in readable(escaped_in(entry.lock)).casefold()
    pattern = pattern.replace("[", "[[]")  # brackets in keys are no pattern
    return lambda entry: fnmatchcase(readable(escaped_in(entry.lock)).casefold(), pattern)


def _looking(client: Locks, found: list[Entry], now: float) -> Program[list[LockInfo]]:
    seen = yield from inspecting_many([entry.lock for entry in found])
    return [
        _info(client, readable(escaped_in(entry.lock)), look, now, entry.ends)
        for entry, look in zip(found, seen, strict=True)
    ]


def _finding(client: Locks, key: str) -> Program[LockInfo]:
    lock = client.listed(key).keys.lock
    (look,) = yield from inspecting_many([lock])
    return _info(client, readable(escaped_in(lock)), look)


def _info(client: Locks, key: str, look: Inspection, now: float = 0.0, ends: float = 0.0) -> LockInfo:
    return info_of(client.settings.alias, key, look, client.max_hold, now, ends)


def _counting(client: Locks) -> Program[Counts]:
    totals = dict.fromkeys(STATES["all"], 0)
    if client.settings.index:
        for part in totals:
            for listing in _listings(client, part):
                totals[part] += (yield from entries(*listing, 0, 0)).total
    return Counts(totals["held"], totals["ended"], totals["queued"])


def _one_of(what: str, value: object, known: Iterable[str]) -> None:
    if value not in tuple(known):
        raise ValueError(f"{what} is one of {', '.join(known)}, not {value!r}")


def _within(what: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        bounds = f"from {least} on" if most == sys.maxsize else f"from {least} to {most}"
        raise ValueError(f"{what} is a whole number {bounds}, not {value!r}")

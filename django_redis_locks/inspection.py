"""Lists, inspects, counts and force-releases the locks of an alias. The admin and the management command use only this
module.

The index of the alias names the locks; each of them is then read, because the index may be out of date. A search, and
most sort orders, read all locks, at most the ``MOST`` locks whose leases end first.
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
        held: held locks, and running jobs.
        expired: leases that ended without a release within the last hour.
        queued: jobs that haven't started.
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
        match: a part of the key; or a pattern with ``*`` and ``?`` for the whole key; or the digest that log records
            have instead of the key. Case is ignored.
        state: ``"held"``, ``"overdue"``, ``"expired"``, ``"queued"`` or ``"all"``.
        order: ``"lease_left"``, ``"key"``, ``"name"``, ``"held_for"``, ``"fence"``, ``"waiting"`` or ``"holder"``; a
            minus in front sorts in descending order.
        limit: the largest number of locks on the page, 1 to 1 000.
        cursor: where the page begins: 0, or ``next`` of the previous page.

    Raises:
        ValueError: an argument is out of its range.
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
    """Release a lock without its holder. The holder's work goes on until its next renewal detects the loss.

    Args:
        key: the filled key.
        using: the alias.
        fence: release the lock only if its current hold has this fence.
        reason: why, for the log and the signal.
        actor: the user or program that releases it, for the log and the signal.

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
"""The parts of the index to read for each choice, in the order in which a lock moves through them: a lock that moves
during the reading is found in the later part."""

COLUMNS: dict[str, Callable[[LockInfo], Any]] = {
    "lease_left": lambda info: info.lease_left or 0.0,
    "key": lambda info: info.key,
    "name": lambda info: info.name,
    "held_for": lambda info: info.held_for or 0.0,
    "fence": lambda info: info.fence or 0,
    "waiting": lambda info: info.waiting,
    "holder": lambda info: str(info.holder or ""),
}

_ENTRY_COLUMNS: dict[str, Callable[[Entry], Any]] = {
    "lease_left": lambda entry: entry.ends,
    "key": lambda entry: readable(escaped_in(entry.lock)),
}
"""The columns by which index entries can be sorted before their locks are read."""


def _listing(client: Locks, match: str, state: Choice, order: str, limit: int, cursor: int) -> Program[Page]:
    column, descending = order.removeprefix("-"), order.startswith("-")
    _check_choice("state", state, STATES)
    _check_choice("order", column, COLUMNS)
    _check_range("limit", limit, 1, LONGEST_PAGE)
    _check_range("cursor", cursor, 0, sys.maxsize)
    if not client.settings.index:
        return Page([], 0, None, indexed=False)
    parts = [index_part for part in STATES[state] for index_part in _index_parts(client, part)]
    if state in ("held", "expired", "queued") and not match and column == "lease_left" and len(parts) == 1:
        page = yield from entries(*parts[0], cursor, limit, last_first=descending)  # the index is in this order
        rows = yield from _reading(client, page.found, page.at)
        return Page(_filter_state(rows, state), page.total, _next(cursor, limit, page.total))
    entry_of: dict[str, Entry] = {}
    partial, now = False, 0.0
    for index, part in parts:
        page = yield from entries(index, part, 0, MOST)
        entry_of.update((entry.lock, entry) for entry in page.found)
        partial = partial or page.total > len(page.found)
        now = page.at
    found = list(entry_of.values())
    if match:
        found = list(filter(_matcher(match), found))
    sort_key = _ENTRY_COLUMNS.get(column)
    if sort_key is not None and state != "overdue":  # only the locks of the page need to be read
        found.sort(key=sort_key, reverse=descending)
        rows = yield from _reading(client, found[cursor : cursor + limit], now)
        return Page(_filter_state(rows, state), len(found), _next(cursor, limit, len(found)), partial)
    rows = _filter_state((yield from _reading(client, found, now)), state)
    rows.sort(key=COLUMNS[column], reverse=descending)
    return Page(rows[cursor : cursor + limit], len(rows), _next(cursor, limit, len(rows)), partial)


def _index_parts(client: Locks, part: str) -> list[tuple[str, str]]:
    """Return the indexes that contain a part, each with the name of the part there."""
    if part == "queued":
        return [(queued_index(index), "held") for index in client.listings]
    return [(index, part) for index in client.listings]


def _next(cursor: int, limit: int, total: int) -> int | None:
    return cursor + limit if cursor + limit < total else None


def _filter_state(rows: list[LockInfo], state: Choice) -> list[LockInfo]:
    """Return the rows in this state, without locks that were released since the index was read."""
    held = ("held", "overdue", "foreign")
    wanted = {"held": held, "all": (*held, "expired", "queued")}
    return [row for row in rows if row.state in wanted.get(state, (state,))]


_is_digest = re.compile(r"[0-9a-f]{16}").fullmatch


def _matcher(match: str) -> Callable[[Entry], bool]:
    """Return the function that decides whether the key of an index entry matches."""
    pattern = match.casefold()
    if _is_digest(pattern):
        return lambda entry: (
            pattern in (key := readable(escaped_in(entry.lock))).casefold() or digest_of(key) == pattern
        )
    if not any(wildcard in pattern for wildcard in "*?"):
        return lambda entry: pattern in readable(escaped_in(entry.lock)).casefold()
    pattern = pattern.replace("[", "[[]")  # fnmatch would take brackets for a character class
    return lambda entry: fnmatchcase(readable(escaped_in(entry.lock)).casefold(), pattern)


def _reading(client: Locks, found: list[Entry], now: float) -> Program[list[LockInfo]]:
    inspections = yield from inspecting_many([entry.lock for entry in found])
    return [
        _info(client, readable(escaped_in(entry.lock)), inspection, now, entry.ends)
        for entry, inspection in zip(found, inspections, strict=True)
    ]


def _finding(client: Locks, key: str) -> Program[LockInfo]:
    lock = client.listed(key).keys.lock
    (inspection,) = yield from inspecting_many([lock])
    return _info(client, readable(escaped_in(lock)), inspection)


def _info(client: Locks, key: str, inspection: Inspection, now: float = 0.0, ends: float = 0.0) -> LockInfo:
    return info_of(client.settings.alias, key, inspection, client.max_hold, now, ends)


def _counting(client: Locks) -> Program[Counts]:
    totals = dict.fromkeys(STATES["all"], 0)
    if client.settings.index:
        for part in totals:
            for index, part_there in _index_parts(client, part):
                totals[part] += (yield from entries(index, part_there, 0, 0)).total
    return Counts(totals["held"], totals["ended"], totals["queued"])


def _check_choice(what: str, value: object, known: Iterable[str]) -> None:
    if value not in tuple(known):
        raise ValueError(f"{what} is one of {', '.join(known)}, not {value!r}")


def _check_range(what: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        bounds = f"from {least} on" if most == sys.maxsize else f"from {least} to {most}"
        raise ValueError(f"{what} is a whole number {bounds}, not {value!r}")

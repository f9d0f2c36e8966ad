"""Who holds what: the locks of an alias as values. The admin, the command and metrics read nothing else.

Locks are listed by the index of their alias, which is a hint, and then looked at. What needs to be known of all locks
before some can be shown, such as who has held his for longest, is told of the ``MOST`` locks whose leases end first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .core.holder import Holder
from .core.keys import escaped_in, readable, usual_name
from .core.runner import arun, run
from .handler import DEFAULT, locks
from .primitives.listing import entries, looks
from .primitives.lock import KIND
from .primitives.wishes import Foreign

if TYPE_CHECKING:
    from .client import Locks
    from .core.effects import Program
    from .primitives.listing import Entry, Look

State: TypeAlias = Literal["held", "overdue", "expired", "free", "foreign"]
"""Of a lock: it is held; held for longer than ``MAX_HOLD``; its lease ended without a release, within the last hour; it
is free; or something that is no lock of ours lives under its key."""

Choice: TypeAlias = Literal["held", "overdue", "expired", "all"]
"""Which locks are listed. Those that are overdue are held, too."""

MOST: Final = 10_000
"""So many locks of an alias are sorted and searched at most."""

LONGEST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock, as it was when its page was read.

    Attributes:
        alias: of ``REDIS_LOCKS``.
        key: what is locked. Of one beyond 200 bytes only the beginning is kept, and a hash of the rest: it names the lock
            here all the same. Personal data, perhaps.
        name: its label.
        kind: of lock.
        state: see ``State``.
        holder: who has it, with his fence; None unless it is held.
        held_for: seconds since it was acquired; None unless it is held.
        lease_left: seconds until its lease ends, negative since it ended; None if it is free.
        waiting: so many queues of processes wait for it.
        foreign: what lives under the key instead of a lock.
    """

    alias: str
    key: str
    name: str
    state: State
    kind: str = KIND
    holder: Holder | None = None
    held_for: float | None = None
    lease_left: float | None = None
    waiting: int = 0
    foreign: str = ""

    @property
    def fence(self) -> int | None:
        """Of the hold; None unless it is held."""
        return None if self.holder is None else self.holder.fence

    @property
    def since(self) -> datetime | None:
        """When it was acquired, on the store's clock; None unless it is held."""
        return None if self.holder is None else datetime.fromtimestamp(self.holder.since, UTC)


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the locks of an alias.

    Attributes:
        rows: the locks. Those that were released while the page was read are left out.
        total: how many there are in all, in this state and with such keys.
        next: the cursor of the next page; None after the last one.
        partial: there are more than ``MOST`` locks; the others were neither searched nor sorted.
        indexed: False if ``INDEX`` is off for this alias, so that none of its locks is ever listed.
    """

    rows: list[LockInfo]
    total: int
    next: int | None
    partial: bool = False
    indexed: bool = True


@dataclass(frozen=True, slots=True)
class Counts:
    """How many locks of an alias are held, and how many leases ended without a release within the last hour."""

    held: int
    expired: int


def held(
    using: str = DEFAULT,
    *,
    match: str = "",
    state: Choice = "held",
    order: str = "lease_left",
    limit: int = 50,
    cursor: int = 0,
) -> Page:
    """The locks of an alias.

    Args:
        using: the alias.
        match: a part of the key, in capitals or not; or all of it, with ``*`` and ``?``.
        state: ``"held"``, ``"overdue"``, ``"expired"`` or ``"all"``.
        order: ``"lease_left"``, ``"key"``, ``"name"``, ``"held_for"``, ``"fence"``, ``"waiting"`` or ``"holder"``; with a
            minus in front the other way round.
        limit: so many at most, up to 1 000.
        cursor: so many are passed over: 0, or a page's ``next``.

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
    """One lock, held or free, by its key.

    Raises:
        LockKeyError: no key at all.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(_finding(client, key), client.engine)


async def afind(key: str, using: str = DEFAULT) -> LockInfo:
    """As ``find``."""
    client = locks[using]
    return await arun(_finding(client, key), client.engine)


def counts(using: str = DEFAULT) -> Counts:
    """How many locks an alias has.

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
    """Free a lock whoever holds it. Its holder goes on until he notices.

    Args:
        fence: free only the hold with this fence, not one that came since.
        reason, actor: why, and who did it, for the log and the signal.

    Returns:
        Whether there was anything to free.

    Raises:
        LockKeyError: no key at all.
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
    "all": ("held", "ended"),
}
"""Each choice of locks, and in which parts of the index they are."""

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
"""What the index tells."""


def _listing(client: Locks, match: str, state: Choice, order: str, limit: int, cursor: int) -> Program[Page]:
    column, backwards = order.removeprefix("-"), order.startswith("-")
    _one_of("state", state, STATES)
    _one_of("order", column, COLUMNS)
    _within("limit", limit, 1, LONGEST_PAGE)
    _within("cursor", cursor, 0, sys.maxsize)
    if not client.settings.index:
        return Page([], 0, None, indexed=False)
    parts = [(listing, which) for which in STATES[state] for listing in client.listings]
    if state in ("held", "expired") and not match and column == "lease_left" and len(parts) == 1:
        page = yield from entries(*parts[0], cursor, limit, last_first=backwards)  # the index is in this order
        rows = yield from _looking(client, page.found, page.at)
        return Page(_of_state(rows, state), page.total, _next(cursor, limit, page.total))
    found: list[Entry] = []
    partial, now = False, 0.0
    for listing, which in parts:
        page = yield from entries(listing, which, 0, MOST)
        found += page.found
        partial = partial or page.total > len(page.found)
        now = page.at
    if match:
        found = list(filter(_matching(match), found))
    by = _OF_ENTRIES.get(column)
    if by is not None and state != "overdue":  # who is on the page is known without a look at all
        found.sort(key=by, reverse=backwards)
        rows = yield from _looking(client, found[cursor : cursor + limit], now)
        return Page(_of_state(rows, state), len(found), _next(cursor, limit, len(found)), partial)
    rows = _of_state((yield from _looking(client, found, now)), state)
    rows.sort(key=COLUMNS[column], reverse=backwards)
    return Page(rows[cursor : cursor + limit], len(rows), _next(cursor, limit, len(rows)), partial)


def _next(cursor: int, limit: int, total: int) -> int | None:
    return cursor + limit if cursor + limit < total else None


def _of_state(rows: list[LockInfo], state: Choice) -> list[LockInfo]:
    """Without those that were released since the index was read."""
    wanted = {"held": ("held", "overdue", "foreign"), "all": ("held", "overdue", "foreign", "expired")}
    return [row for row in rows if row.state in wanted.get(state, (state,))]


def _matching(match: str) -> Callable[[Entry], bool]:
    pattern = match.casefold()
    if not any(sign in pattern for sign in "*?"):
        return lambda entry: pattern in readable(escaped_in(entry.lock)).casefold()
    pattern = pattern.replace("[", "[[]")  # keys have brackets of their own
    return lambda entry: fnmatchcase(readable(escaped_in(entry.lock)).casefold(), pattern)


def _looking(client: Locks, found: list[Entry], now: float) -> Program[list[LockInfo]]:
    seen = yield from looks([entry.lock for entry in found])
    return [
        _info(client, readable(escaped_in(entry.lock)), look, now, entry.ends)
        for entry, look in zip(found, seen, strict=True)
    ]


def _finding(client: Locks, key: str) -> Program[LockInfo]:
    lock = client.listed(key).keys.lock
    (look,) = yield from looks([lock])
    return _info(client, readable(escaped_in(lock)), look)


def _info(client: Locks, key: str, look: Look, now: float = 0.0, ends: float = 0.0) -> LockInfo:
    """``now`` and ``ends`` are of the index, where it was asked."""
    alias = client.settings.alias
    found = look.found
    if found is None:
        ended = 0.0 < ends <= now
        return LockInfo(
            alias,
            key,
            usual_name(key),
            "expired" if ended else "free",
            lease_left=ends - now if ended else None,
            waiting=look.waiting,
        )
    if isinstance(found, Foreign):
        return LockInfo(alias, key, usual_name(key), "foreign", foreign=found.what, waiting=look.waiting)
    name = found.name or usual_name(key)
    held_for = max(0.0, look.at - found.since)
    return LockInfo(
        alias,
        key,
        name,
        "overdue" if held_for > client.max_hold(name) else "held",
        holder=found,
        held_for=held_for,
        lease_left=found.lease_left,
        waiting=look.waiting,
    )


def _counting(client: Locks) -> Program[Counts]:
    totals = {"held": 0, "ended": 0}
    if client.settings.index:
        for listing in client.listings:
            for which in totals:
                totals[which] += (yield from entries(listing, which, 0, 0)).total
    return Counts(totals["held"], totals["ended"])


def _one_of(what: str, value: object, known: Iterable[str]) -> None:
    if value not in tuple(known):
        raise ValueError(f"{what} is one of {', '.join(known)}, not {value!r}")


def _within(what: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        bounds = f"from {least} on" if most == sys.maxsize else f"from {least} to {most}"
        raise ValueError(f"{what} is a whole number {bounds}, not {value!r}")

"""What the admin's change list, its paginator and its actions ask of a QuerySet, answered by ``inspection.py``.

Not a QuerySet: what isn't here, nobody needs. Nothing is read before somebody asks for rows, and then one page at once. A
store that can't be asked gives no rows and a ``problem``, never an exception: the page has to say so, not to fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from .. import inspection
from ..core.errors import LockError, LockKeyError
from ..handler import DEFAULT, locks
from ..inspection import Choice, LockInfo, Page
from ..models import HeldLock

PAGE: Final = 50
"""So many locks are on a page."""

ORDERS: Final = ("key", "name", "holder", "held_for", "lease_left", "fence", "waiting")

_unsafe = re.compile(r"[\x00-\x20%\x7f]")


def aliases() -> list[str]:
    """Of ``REDIS_LOCKS``, the default one first."""
    try:
        known = list(locks)
    except ImproperlyConfigured:
        known = []
    return sorted(known or [DEFAULT], key=lambda alias: alias != DEFAULT)


def id_of(alias: str, key: str) -> str:
    """Names a lock in addresses: whatever the key holds, without control characters and spaces."""
    return f"{quote(alias, safe='')}:{_unsafe.sub(lambda match: quote(match[0]), key)}"


def named(id: str) -> tuple[str, str] | None:
    """The alias and the key of an id; None if it names no lock."""
    alias, colon, key = id.partition(":")
    alias, key = unquote(alias), unquote(key)
    return (alias, key) if colon and key and alias in aliases() else None


def row(info: LockInfo) -> HeldLock:
    """A lock as the admin's object."""
    lock = HeldLock(
        id=id_of(info.alias, info.key),
        alias=info.alias,
        key=info.key,
        name=info.name,
        kind=info.kind,
        holder="" if info.holder is None else str(info.holder),
        held_for=info.held_for,
        lease_left=info.lease_left,
        fence=info.fence,
        waiting=info.waiting,
    )
    lock.info = info
    return lock


def find(id: str) -> HeldLock | None:
    """The lock of an id, held or free; None if there can't be such a lock."""
    name = named(id)
    if name is None:
        return None
    alias, key = name
    try:
        return row(inspection.find(key, alias))
    except LockKeyError:
        return None
    except (LockError, ImproperlyConfigured) as error:
        lock = HeldLock(id=id, alias=alias, key=key)
        lock.problem = str(error)
        return lock


def find_all(ids: Iterable[str]) -> tuple[list[HeldLock], str]:
    """The locks of these ids; and why it isn't all of them: one wait for a store that is down is enough."""
    found: list[HeldLock] = []
    for id in dict.fromkeys(ids):
        lock = find(id)
        if lock is not None and lock.problem:
            return found, lock.problem
        if lock is not None:
            found.append(lock)
    return found, ""


@dataclass
class Rows:
    """Some locks of one alias: ``only`` those with these ids, or a search and a state. ``limit`` of them are read at once,
    ``start`` being where the page begins that will be asked for."""

    using: str
    match: str = ""
    state: Choice = "held"
    order: str = "lease_left"
    only: tuple[str, ...] | None = None
    start: int = 0
    limit: int = PAGE
    read: tuple[int, Page] | None = field(default=None, repr=False, compare=False)
    problem: str = field(default="", compare=False)

    model: ClassVar = HeldLock
    db: ClassVar = None
    ordered: ClassVar = True
    totally_ordered: ClassVar = True
    query: ClassVar = SimpleNamespace(select_related=True, order_by=())

    def _but(self, **changes: Any) -> Rows:
        return replace(self, read=None, problem="", **changes)

    # The criteria

    def of(self, using: str) -> Rows:
        return self._but(using=using)

    def in_state(self, state: Choice) -> Rows:
        return self._but(state=state)

    def matching(self, match: str) -> Rows:
        return self._but(match=match)

    def order_by(self, *names: str) -> Rows:
        """By the first column that can be sorted by."""
        known = (name for name in names if name.removeprefix("-") in ORDERS)
        return self._but(order=next(known, "lease_left"))

    def filter(self, *conditions: Q, **lookups: Any) -> Rows:
        """Only ``pk__in``, which actions ask for; what isn't understood isn't ignored."""
        if any(conditions) or lookups.keys() - {"pk__in"}:
            raise IncorrectLookupParameters(*conditions, lookups)
        return self._but(only=tuple(lookups["pk__in"])) if lookups else self

    def all(self) -> Rows:
        return self

    def _clone(self) -> Rows:
        return replace(self)

    # The rows

    @property
    def page(self) -> Page:
        """What was read last, or now."""
        return self._page(self.start if self.read is None else self.read[0])

    def count(self) -> int:
        return self.page.total

    __len__ = count

    def __getitem__(self, wanted: slice) -> list[HeldLock]:
        """A page, as paginators ask for it."""
        start = wanted.start or 0
        return [row(info) for info in self._page(start).rows[: wanted.stop - start]]

    def __iter__(self) -> Iterator[HeldLock]:
        return map(row, self.page.rows)

    def _page(self, start: int) -> Page:
        if self.read is None or self.read[0] != start:
            try:
                page = self._listed(start) if self.only is None else self._chosen(self.only)
            except (LockError, ImproperlyConfigured) as error:
                self.problem = str(error)
                page = Page([], 0, None)
            self.read = (start, page)
        return self.read[1]

    def _listed(self, start: int) -> Page:
        page = inspection.held(
            self.using, match=self.match, state=self.state, order=self.order, limit=self.limit, cursor=start
        )
        if not page.indexed and self.match:  # nothing is listed, but one can be looked at
            info = inspection.find(self.match, self.using)
            rows = [info] if info.state != "free" else []
            return replace(page, rows=rows, total=len(rows))
        return page

    def _chosen(self, ids: tuple[str, ...]) -> Page:
        """Those of this alias: a page shows no others."""
        mine = [id for id in ids if (name := named(id)) is not None and name[0] == self.using]
        found, self.problem = find_all(mine)
        infos = [lock.info for lock in found if lock.info is not None]
        return Page(infos, len(infos), None)

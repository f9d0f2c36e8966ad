"""``LockQuerySet``: the part of Django's QuerySet that the admin's list needs, which reads locks by ``inspection.py``.

It is lazy: the first access to rows reads one page. If the store can't be reached, there are no rows, and ``problem``
has the error for the page.
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

from .. import diagnosis, inspection
from ..core.errors import LockError, LockKeyError
from ..handler import DEFAULT, locks
from ..inspection import Choice, LockInfo, Page
from ..models import HeldLock
from ..topology_text import describe

PAGE: Final = 50
"""Locks on a page."""

ORDERS: Final = ("key", "name", "holder", "held_for", "lease_left", "fence", "waiting")

_unsafe = re.compile(r"[\x00-\x20%\x7f]")


def aliases() -> list[str]:
    """The aliases of ``REDIS_LOCKS``, the default one first."""
    try:
        known = list(locks)
    except ImproperlyConfigured:
        known = []
    return sorted(known or [DEFAULT], key=lambda alias: alias != DEFAULT)


def id_of(alias: str, key: str) -> str:
    """The id of a lock in URLs: alias and key, with control characters and spaces escaped."""
    return f"{quote(alias, safe='')}:{_unsafe.sub(lambda match: quote(match[0]), key)}"


def parse_id(id: str) -> tuple[str, str] | None:
    """The alias and the key of an id; None if the id is malformed or its alias unknown."""
    alias, colon, key = id.partition(":")
    alias, key = unquote(alias), unquote(key)
    return (alias, key) if colon and key and alias in aliases() else None


def to_held_lock(info: LockInfo) -> HeldLock:
    """The admin's model instance for a lock."""
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
    """The lock of an id, held or free; None if the id is invalid."""
    name = parse_id(id)
    if name is None:
        return None
    alias, key = name
    try:
        return to_held_lock(inspection.find(key, alias))
    except LockKeyError:
        return None
    except (LockError, ImproperlyConfigured) as error:
        lock = HeldLock(id=id, alias=alias, key=key)
        lock.problem = str(error)
        return lock


def find_all(ids: Iterable[str]) -> tuple[list[HeldLock], str]:
    """The locks of these ids and, if the store fails, an error text: then the remaining ids aren't looked up."""
    found: list[HeldLock] = []
    for id in dict.fromkeys(ids):
        lock = find(id)
        if lock is not None and lock.problem:
            return found, lock.problem
        if lock is not None:
            found.append(lock)
    return found, ""


@dataclass
class LockQuerySet:
    """Locks of one alias.

    Args:
        using: the alias.
        match: a search for keys, as for ``inspection.held``.
        state: only locks in this state.
        order: the column to sort by, descending with a "-".
        only: only the locks with these ids, regardless of search and state.
        start: index of the first lock of the page to read.
        limit: the number of locks of a page.
        read: the last page that was read, with its ``start``.
        problem: why the page couldn't be read.
    """

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

    def _with(self, **changes: Any) -> LockQuerySet:
        return replace(self, read=None, problem="", **changes)

    # Criteria

    def of(self, using: str) -> LockQuerySet:
        return self._with(using=using)

    def in_state(self, state: Choice) -> LockQuerySet:
        return self._with(state=state)

    def matching(self, match: str) -> LockQuerySet:
        return self._with(match=match)

    def order_by(self, *names: str) -> LockQuerySet:
        """Sort by the first of these columns that is sortable."""
        known = (name for name in names if name.removeprefix("-") in ORDERS)
        return self._with(order=next(known, "lease_left"))

    def filter(self, *conditions: Q, **lookups: Any) -> LockQuerySet:
        """Supports ``pk__in``, which actions use.

        Raises:
            IncorrectLookupParameters: any other condition.
        """
        if any(conditions) or lookups.keys() - {"pk__in"}:
            raise IncorrectLookupParameters(*conditions, lookups)
        return self._with(only=tuple(lookups["pk__in"])) if lookups else self

    def all(self) -> LockQuerySet:
        return self

    def _clone(self) -> LockQuerySet:
        return replace(self)

    # Rows

    @property
    def page(self) -> Page:
        """The page that was read last; if there is none, the page at ``start`` is read."""
        return self._page(self.start if self.read is None else self.read[0])

    @property
    def store(self) -> str:
        """The servers of the alias."""
        page = self.page  # reading it makes them known
        return describe(diagnosis.topology(self.using), len(page.unreachable))

    def count(self) -> int:
        return self.page.total

    __len__ = count

    def __getitem__(self, wanted: slice) -> list[HeldLock]:
        """The locks of a slice, which the paginator makes for a page."""
        start = wanted.start or 0
        return [to_held_lock(info) for info in self._page(start).rows[: wanted.stop - start]]

    def __iter__(self) -> Iterator[HeldLock]:
        return map(to_held_lock, self.page.rows)

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
        if not page.indexed and self.match:  # without an index only a whole key can be found
            info = inspection.find(self.match, self.using)
            rows = [info] if info.state != "free" else []
            return replace(page, rows=rows, total=len(rows))
        return page

    def _chosen(self, ids: tuple[str, ...]) -> Page:
        """The locks of these ids that belong to this alias."""
        own = [id for id in ids if (name := parse_id(id)) is not None and name[0] == self.using]
        found, self.problem = find_all(own)
        infos = [lock.info for lock in found if lock.info is not None]
        return Page(infos, len(infos), None)

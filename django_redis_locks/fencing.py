"""Rows that refuse a late holder: each keeps the fence of its last writer, and the database compares.

A process is paused, its lease ends, another one takes the lock and writes, and the first one wakes up between its last
look at the clock and its own write. No lock can stop that write; the row can.

Models import this module, so it is not for the time before Django's apps are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import models, router, transaction

from .core.errors import LockNotOwned, StaleGrant
from .core.registry import registry

if TYPE_CHECKING:
    from django.db.models.base import ModelBase

    from .core.grant import Grant
    from .core.hold import Hold

_moment = count(1).__next__
"""Orders what this process reads and writes."""

_written: WeakKeyDictionary[Hold, dict[tuple[str, object], int]] = WeakKeyDictionary()
"""The moment of the last ``save`` of each row under a hold: its fence is the same for all of them."""

MOST_ROWS = 10_000
"""Of so many rows for each hold, the latest, the moment is kept."""


def fenced_update(queryset: models.QuerySet[Any], grant: Grant, /, **values: Any) -> int:
    """``queryset.update(**values)``, but only if no later holder has written any of these rows: all of them or none.

    The model is any that has a field ``fence``; it gets the fence of the grant. How many rows it were, is returned.

    Raises:
        StaleGrant: a later holder has written one of them, or there is none.
        LockLost: the lock isn't held any more. Nothing was sent.
        LockBackendError: there never was a lock (``on_backend_error="open"``). Nothing was sent.
        ValueError: the update would need a second table.
    """
    mine = _fence_of(grant)
    due = queryset.filter(fence__lte=mine)
    _refuse_joins(due, values)
    with transaction.atomic(using=queryset.select_for_update().db):  # of several rows some may be written, and undone
        written = due.update(**values, fence=mine)
        later = queryset.filter(fence__gt=mine).select_for_update().values_list("fence", flat=True).first()
        if later is not None or not written:
            raise _stale(queryset.model, grant, later)
    return written


async def afenced_update(queryset: models.QuerySet[Any], grant: Grant, /, **values: Any) -> int:
    """As ``fenced_update``."""
    return await sync_to_async(fenced_update)(queryset, grant, **values)


class FencedModel(models.Model):
    """A model whose rows are saved under a lock, and know who wrote them last."""

    fence: models.BigIntegerField[int, int] = models.BigIntegerField(default=0, editable=False)

    _read: tuple[int | None, int] | None = None
    """The fence that was read or written last, None if it was deferred, and the moment. None for an instance that wasn't."""

    class Meta:
        abstract = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Moments of other processes mean nothing here, so a copy counts as read before all that this one wrote."""
        super().__setstate__(state)  # type: ignore[misc]
        if self._read is not None:
            self._read = self._read[0], 0

    def save(
        self,
        *,
        grant: Grant | None = None,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Save it under ``grant``, by default that of the one lock which the caller holds.

        A row that was read is written only if no holder has written it since, this one included. A new row is inserted, and
        needs no lock.

        Raises:
            StaleGrant: it was written since this instance read it, or it is gone.
            ValueError: it was read without its fence. Nothing was sent.
            LockNotOwned: the caller holds no lock, or several and doesn't say which.
            LockLost: the lock isn't held any more. Nothing was sent.
            LockBackendError: there never was a lock (``on_backend_error="open"``). Nothing was sent.
        """
        using = using or router.db_for_write(type(self), instance=self)
        unread = self._state.adding or self.pk is None
        grants = [grant] if grant is not None else _grants_of_caller()
        mine = _fence_of(grants[0]) if len(grants) == 1 else None
        if force_insert or (unread and not force_update and update_fields is None):
            moment = _moment()
            with self._carrying(mine or 0):
                super().save(using=using, force_insert=force_insert or True)
            self._note(moment, grants[0].hold if mine is not None else None)
            return
        if mine is None:
            raise _unclear(type(self), grants)
        read = None if unread else self._fence_read(grants[0])
        row = self._row(using)
        due = row.filter(fence__lte=mine) if read is None else row.filter(fence__lte=mine, fence=read)
        with transaction.atomic(using=using, savepoint=False):
            written = due.update(fence=mine)  # locks the row until COMMIT
            moment = _moment()  # a handler of post_save may write the row once more
            if written:
                with self._carrying(mine):
                    super().save(using=using, force_update=force_update, update_fields=update_fields)
        if written:
            self._note(moment, grants[0].hold)
        else:
            raise _stale(type(self), grants[0], _stored(row), read)

    async def asave(
        self,
        *,
        grant: Grant | None = None,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """As ``save``."""
        await sync_to_async(self.save)(
            grant=grant,
            force_insert=force_insert,
            force_update=force_update,
            using=using,
            update_fields=update_fields,
        )

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().from_db(*args, **kwargs)
        instance._note(_moment())
        return instance

    def refresh_from_db(
        self,
        using: str | None = None,
        fields: Iterable[str] | None = None,
        from_queryset: models.QuerySet[Any] | None = None,
    ) -> None:
        super().refresh_from_db(using, fields, from_queryset)
        if fields is None:  # the others are as old as before
            self._note(_moment())

    def _row(self, using: str) -> models.QuerySet[Any]:
        """In the table that has the fence, which is a parent's if the parent is a model of its own."""
        owner, pk = self._place()
        return owner._base_manager.using(using).filter(pk=pk)  # type: ignore[no-any-return]

    def _place(self) -> tuple[Any, object]:
        owner: Any = self._meta.get_field("fence").model
        return owner, getattr(self, owner._meta.pk.attname)

    def _note(self, moment: int, hold: Hold | None = None) -> None:
        """This instance is as the row was at this moment; if it was written, under this hold."""
        self._read = self.__dict__.get("fence"), moment
        if hold is not None:
            owner, pk = self._place()
            rows = _written.setdefault(hold, {})
            later = rows.pop((owner._meta.label, pk), 0)
            rows[owner._meta.label, pk] = max(later, moment)
            if len(rows) > MOST_ROWS:
                del rows[next(iter(rows))]

    def _fence_read(self, grant: Grant) -> int | None:
        """The fence to compare, None for an instance that wasn't read."""
        if self._read is None:
            return None
        read, moment = self._read
        if read is None:
            raise ValueError(
                f"a {self._meta.label} that is saved is read with its fence: name it in only(), and not in defer(); "
                "refresh_from_db() without fields reads it too"
            )
        owner, pk = self._place()
        if _written.get(grant.hold, {}).get((owner._meta.label, pk), 0) > moment:
            raise _stale(type(self), grant, grant.fence, read)
        return read

    @contextmanager
    def _carrying(self, fence: int) -> Iterator[None]:
        """It has this fence now, and the one before again if it couldn't be written."""
        before = {"fence": self.__dict__["fence"]} if "fence" in self.__dict__ else {}
        self.fence = fence
        try:
            yield
        except BaseException:
            del self.__dict__["fence"]
            self.__dict__.update(before)
            raise


def _fence_of(grant: Grant) -> int:
    """A grant that is known to be lost writes nothing, whatever the row says: a later holder may have read it already."""
    grant.ensure_held()
    return cast("int", grant.fence)


def _grants_of_caller() -> list[Grant]:
    """One per lock: re-entries share their hold, and its fence."""
    return list({id(grant.hold): grant for grant in registry.in_context()}.values())


def _stored(row: models.QuerySet[Any]) -> int | None:
    """What is committed, which the snapshot of an open transaction may not show. None if the row is gone."""
    with transaction.atomic(using=row.db, savepoint=False):
        return row.select_for_update().values_list("fence", flat=True).first()


def _refuse_joins(due: models.QuerySet[Any], values: Iterable[str]) -> None:
    """With a second table Django selects the rows first, or in a subquery, and what another one commits between that and
    the write isn't compared."""
    model = due.model._meta.concrete_model
    if (
        any(due.model._meta.get_field(name).model is not model for name in values)
        or due.query.count_active_tables() > 1
    ):
        raise ValueError(
            f"fenced_update needs values and conditions of one table, that of {due.model._meta.label}: filter by the "
            "primary key, or save() the instance"
        )


def _unclear(model: type[models.Model], grants: list[Grant]) -> LockNotOwned:
    held = ", ".join(repr(grant.name) for grant in grants)
    found = f"several are held here ({held})" if grants else "none is held here"
    return LockNotOwned(
        f"a {model._meta.label} that was read is saved under its lock, and {found}: "
        f"{'say which with' if grants else 'hold it, or pass'} save(grant=...)"
    )


def _stale(model: type[models.Model], grant: Grant, stored: int | None, read: int | None = None) -> StaleGrant:
    what, mine = model._meta.label, cast("int", grant.fence)
    if stored is None:
        why = f"there is no such {what}"
    elif stored > mine:
        why = f"a later holder has written this {what}: its fence is {stored}, ours is {mine}"
    elif stored == mine:
        why = f"this {what} was read before it was written under the same lock: read it again"
    else:
        why = f"this {what} was read before another holder wrote it: fence {read} was read, {stored} is stored"
    return StaleGrant(
        f"lock {grant.name!r} doesn't cover this write: {why}",
        fence=mine,
        stored=stored,
        key=grant.key,
        name=grant.name,
        alias=grant.alias,
    )

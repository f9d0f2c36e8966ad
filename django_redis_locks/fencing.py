"""Fencing of database rows: each row stores the fence of its last writer, and a write with a smaller fence is rejected.

A paused process may still write after its lease has ended and another process has acquired the lock and written. The
lock can't prevent that write; the comparison in the database does.

Source: fencing tokens (Kleppmann, "How to do distributed locking", 2016), which are the sequencers of Chubby (Burrows,
"The Chubby lock service for loosely-coupled distributed systems", OSDI 2006).

This module defines a model, so import it only after Django's apps are ready.
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
"""Returns a moment: the next number of a counter, which orders the reads and writes of this process."""

_written: WeakKeyDictionary[Hold, dict[tuple[str, object], int]] = WeakKeyDictionary()
"""For each hold, the moment of the last ``save`` of each row. Fences can't order these saves: they are all equal."""

MAX_ROWS = 10_000
"""The largest number of rows in ``_written`` for each hold; the oldest ones are removed."""


def fenced_update(queryset: models.QuerySet[Any], grant: Grant, /, **values: Any) -> int:
    """``queryset.update(**values)`` under a lock: all rows are updated, or none if a later holder has written any of
    them.

    Args:
        queryset: rows of any model with a field ``fence``, which gets the fence of the grant.
        grant: the grant of the lock.
        **values: as for ``update()``.

    Returns:
        The number of updated rows.

    Raises:
        StaleGrant: a later holder has written one of the rows, or there are none.
        LockLost: the lock isn't held any more. Nothing was sent.
        LockBackendError: there never was a lock (``on_backend_error="open"``). Nothing was sent.
        ValueError: the update would need a second table.
    """
    own_fence = _fence_of(grant)
    writable = queryset.filter(fence__lte=own_fence)
    _refuse_joins(writable, values)
    # A transaction, to undo the update if one of several rows is rejected
    with transaction.atomic(using=queryset.select_for_update().db):
        written = writable.update(**values, fence=own_fence)
        later = queryset.filter(fence__gt=own_fence).select_for_update().values_list("fence", flat=True).first()
        if later is not None or not written:
            raise _stale(queryset.model, grant, later)
    return written


async def afenced_update(queryset: models.QuerySet[Any], grant: Grant, /, **values: Any) -> int:
    """``queryset.update(**values)`` under a lock: all rows are updated, or none if a later holder has written any of
    them.

    Args:
        queryset: rows of any model with a field ``fence``, which gets the fence of the grant.
        grant: the grant of the lock.
        **values: as for ``update()``.

    Returns:
        The number of updated rows.

    Raises:
        StaleGrant: a later holder has written one of the rows, or there are none.
        LockLost: the lock isn't held any more. Nothing was sent.
        LockBackendError: there never was a lock (``on_backend_error="open"``). Nothing was sent.
        ValueError: the update would need a second table.
    """
    return await sync_to_async(fenced_update)(queryset, grant, **values)


class FencedModel(models.Model):
    """A model with a field ``fence``: its rows are saved under a lock, and writes of earlier holders are rejected.

    Example::

        class Account(FencedModel):
            balance = models.IntegerField()


        with locks.lock(f"account:{pk}"):
            account = Account.objects.get(pk=pk)
            account.balance -= 10
            account.save()  # raises StaleGrant if a later holder has written it
    """

    fence: models.BigIntegerField[int, int] = models.BigIntegerField(default=0, editable=False)

    _read: tuple[int | None, int] | None = None
    """The fence that was read or written last (None if its field was deferred) and the moment; None for an instance
    that was neither read nor written."""

    class Meta:
        abstract = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Reset the moment, which has no meaning in another process. An unpickled instance counts as read before all
        writes of this process."""
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
        """Save the row under a lock.

        An existing row is written only if no holder, this one included, has written it since it was read. A new row is
        inserted, and needs no lock.

        Args:
            grant: the grant of the lock; by default of the only lock that the caller holds.
            force_insert, force_update, using, update_fields: as for Django's ``save()``.

        Raises:
            StaleGrant: the row was written since this instance read it, or is deleted.
            ValueError: it was read without its fence. Nothing was sent.
            LockNotOwned: the caller holds no lock, or several and passed no grant.
            LockLost: the lock isn't held any more. Nothing was sent.
            LockBackendError: there never was a lock (``on_backend_error="open"``). Nothing was sent.
        """
        using = using or router.db_for_write(type(self), instance=self)
        unread = self._state.adding or self.pk is None
        grants = [grant] if grant is not None else _grants_of_caller()
        own_fence = _fence_of(grants[0]) if len(grants) == 1 else None
        if force_insert or (unread and not force_update and update_fields is None):
            moment = _moment()
            with self._with_fence(own_fence or 0):
                super().save(using=using, force_insert=force_insert or True)
            self._note_state(moment, grants[0].hold if own_fence is not None else None)
            return
        if own_fence is None:
            raise _no_single_grant(type(self), grants)
        read = None if unread else self._fence_read(grants[0])
        row = self._row(using)
        writable = row.filter(fence__lte=own_fence) if read is None else row.filter(fence__lte=own_fence, fence=read)
        with transaction.atomic(using=using, savepoint=False):
            written = writable.update(fence=own_fence)  # locks the row until COMMIT
            moment = _moment()  # before the save, whose post_save handlers may write the row again
            if written:
                with self._with_fence(own_fence):
                    super().save(using=using, force_update=force_update, update_fields=update_fields)
        if written:
            self._note_state(moment, grants[0].hold)
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
        """Save the row under a lock.

        An existing row is written only if no holder, this one included, has written it since it was read. A new row is
        inserted, and needs no lock.

        Args:
            grant: the grant of the lock; by default of the only lock that the caller holds.
            force_insert, force_update, using, update_fields: as for Django's ``save()``.

        Raises:
            StaleGrant: the row was written since this instance read it, or is deleted.
            ValueError: it was read without its fence. Nothing was sent.
            LockNotOwned: the caller holds no lock, or several and passed no grant.
            LockLost: the lock isn't held any more. Nothing was sent.
            LockBackendError: there never was a lock (``on_backend_error="open"``). Nothing was sent.
        """
        await sync_to_async(self.save)(
            grant=grant,
            force_insert=force_insert,
            force_update=force_update,
            using=using,
            update_fields=update_fields,
        )

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an instance of a row, as Django does, and remember its fence."""
        instance = super().from_db(*args, **kwargs)
        instance._note_state(_moment())
        return instance

    def refresh_from_db(
        self,
        using: str | None = None,
        fields: Iterable[str] | None = None,
        from_queryset: models.QuerySet[Any] | None = None,
    ) -> None:
        """Read the row again, as Django does. Without ``fields``, the fence is read too, so that the row can be
        saved."""
        super().refresh_from_db(using, fields, from_queryset)
        if fields is None:  # otherwise the other fields are still old
            self._note_state(_moment())

    def _row(self, using: str) -> models.QuerySet[Any]:
        """Return the row in the table with the fence, which may be the table of a parent model."""
        owner, pk = self._table_and_pk()
        return owner._base_manager.using(using).filter(pk=pk)  # type: ignore[no-any-return]

    def _table_and_pk(self) -> tuple[Any, object]:
        owner: Any = self._meta.get_field("fence").model
        return owner, getattr(self, owner._meta.pk.attname)

    def _note_state(self, moment: int, hold: Hold | None = None) -> None:
        """Remember that this instance equals the row at this moment. ``hold`` is the hold of the lock if it was
        written."""
        self._read = self.__dict__.get("fence"), moment
        if hold is not None:
            owner, pk = self._table_and_pk()
            rows = _written.setdefault(hold, {})
            previous = rows.pop((owner._meta.label, pk), 0)  # post_save may have written a later moment
            rows[owner._meta.label, pk] = max(previous, moment)
            if len(rows) > MAX_ROWS:
                del rows[next(iter(rows))]

    def _fence_read(self, grant: Grant) -> int | None:
        """Return the fence that the row must still have, or None for an instance that wasn't read.

        Raises:
            ValueError: the instance was read without its fence.
            StaleGrant: the row was written under the same hold since.
        """
        if self._read is None:
            return None
        read, moment = self._read
        if read is None:
            raise ValueError(
                f"this {self._meta.label} was read without its fence, so it can't be saved: name fence in only(), and not in "
                "defer(), or call refresh_from_db() without fields"
            )
        owner, pk = self._table_and_pk()
        if _written.get(grant.hold, {}).get((owner._meta.label, pk), 0) > moment:
            raise _stale(type(self), grant, grant.fence, read)
        return read

    @contextmanager
    def _with_fence(self, fence: int) -> Iterator[None]:
        """Set the fence of the instance for a save. If the save fails, restore the previous fence."""
        before = {"fence": self.__dict__["fence"]} if "fence" in self.__dict__ else {}
        self.fence = fence
        try:
            yield
        except BaseException:
            del self.__dict__["fence"]
            self.__dict__.update(before)
            raise


def _fence_of(grant: Grant) -> int:
    """Return the fence of a grant. Raises if the grant is known to be lost, even if the row would accept its fence: a
    later holder may have read the row already."""
    grant.ensure_held()
    if grant.fence is None:
        raise TypeError(
            f"the lock {grant.name!r} has no fence to compare: its alias has OPTIONS['fence'] False. Leave that option out"
        )
    return grant.fence


def _grants_of_caller() -> list[Grant]:
    """Return the grants of the caller, one for each lock. Re-entries share a hold and a fence."""
    return list({id(grant.hold): grant for grant in registry.in_context()}.values())


def _stored(row: models.QuerySet[Any]) -> int | None:
    """Return the committed fence, which the snapshot of an open transaction may hide; None if the row is deleted."""
    with transaction.atomic(using=row.db, savepoint=False):
        return row.select_for_update().values_list("fence", flat=True).first()


def _refuse_joins(writable: models.QuerySet[Any], values: Iterable[str]) -> None:
    """Check that the update needs only one table. Otherwise Django would select the rows first, or in a subquery, and
    would overwrite a commit between that and the write.

    Raises:
        ValueError: it needs a second table.
    """
    model = writable.model._meta.concrete_model
    if (
        any(writable.model._meta.get_field(name).model is not model for name in values)
        or writable.query.count_active_tables() > 1
    ):
        raise ValueError(
            f"fenced_update needs values and conditions of one table, that of {writable.model._meta.label}: filter by the "
            "primary key, or save() the instance"
        )


def _no_single_grant(model: type[models.Model], grants: list[Grant]) -> LockNotOwned:
    held = ", ".join(repr(grant.name) for grant in grants)
    if grants:
        problem, advice = f"several are held here ({held})", "pass the right one with save(grant=...)"
    else:
        problem, advice = "none is held here", "acquire it, or pass its grant with save(grant=...)"
    return LockNotOwned(f"saving a {model._meta.label} needs its lock, and {problem}: {advice}")


def _stale(model: type[models.Model], grant: Grant, stored: int | None, read: int | None = None) -> StaleGrant:
    what, own_fence = model._meta.label, cast("int", grant.fence)
    if stored is None:
        why = f"there is no such {what}"
    elif stored > own_fence:
        why = f"a later holder has written this {what}: its fence is {stored}, that of this lock is {own_fence}"
    elif stored == own_fence:
        why = f"this {what} was read before the last write under this lock: read it again"
    else:
        why = f"this {what} was read before another holder wrote it: fence {read} was read, {stored} is stored"
    return StaleGrant(
        f"lock {grant.name!r} doesn't cover this write: {why}",
        fence=own_fence,
        stored=stored,
        key=grant.key,
        name=grant.name,
        alias=grant.alias,
    )

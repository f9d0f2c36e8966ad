"""``HeldLock``: a model without a table, which gives held locks a page and permissions in Django's admin.

The admin makes its instances from the values of ``inspection.py``. Its queryset is always empty, so that ``dumpdata``
and other code that iterates over all models finds no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from .core.text import distinct
from .inspection import LockInfo

if TYPE_CHECKING:
    Manager = models.Manager["HeldLock"]
else:
    Manager = models.Manager


class NoRows(Manager):
    """A manager without rows, because there is no table."""

    def get_queryset(self) -> models.QuerySet[HeldLock]:
        """Return an empty queryset."""
        return super().get_queryset().none()


class HeldLock(models.Model):
    """A lock on the admin's page.

    Attributes:
        id: the alias and the key.
        info: the lock; None if the store couldn't be read.
        problem: the error if it couldn't be read.
    """

    id: models.CharField[Any, str] = models.CharField(primary_key=True, max_length=255, editable=False)
    alias: models.CharField[Any, str] = models.CharField(_("alias"), max_length=255)
    key: models.CharField[Any, str] = models.CharField(_("key"), max_length=255)
    name: models.CharField[Any, str] = models.CharField(_("name"), max_length=255)
    kind: models.CharField[Any, str] = models.CharField(_("kind"), max_length=20)
    holder: models.CharField[Any, str] = models.CharField(_("holder"), max_length=255)
    held_for: models.FloatField[Any, float | None] = models.FloatField(_("held for"), null=True)
    lease_left: models.FloatField[Any, float | None] = models.FloatField(_("lease left"), null=True)
    fence: models.BigIntegerField[Any, int | None] = models.BigIntegerField(_("fence"), null=True)
    waiting: models.PositiveIntegerField[Any, int] = models.PositiveIntegerField(_("waiting"), default=0)

    info: LockInfo | None = None
    problem: str = ""

    objects = NoRows()

    class Meta:
        managed = False
        app_label = "django_redis_locks"
        base_manager_name = "objects"
        default_manager_name = "objects"
        default_permissions = ("view",)
        permissions = (("force_release_heldlock", "Can release a held lock by force"),)
        verbose_name = _("held lock")
        verbose_name_plural = _("held locks")

    def __str__(self) -> str:
        return distinct(self.key)

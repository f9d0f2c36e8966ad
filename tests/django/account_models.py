"""Models with a fence, and the creation of their tables on the database `default`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django.db import connection, models

from django_redis_locks.fencing import FencedModel


class Branch(models.Model):
    town = models.CharField(max_length=20)

    class Meta:
        app_label = "accounts"

    def __str__(self) -> str:
        return self.town


class Account(FencedModel):
    balance = models.IntegerField(default=100)
    note = models.CharField(max_length=20, default="")
    branch = models.ForeignKey(Branch, null=True, on_delete=models.CASCADE)

    class Meta:
        app_label = "accounts"


class Savings(Account):
    """Has a table of its own; the fence is in the parent's table."""

    rate = models.IntegerField(default=1)

    class Meta:
        app_label = "accounts"


class Till(Branch, FencedModel):
    """Has a table of its own with the fence; the other fields are in the parent's table."""

    class Meta:
        app_label = "accounts"


class Pooled(Account):
    class Meta:
        app_label = "accounts"
        proxy = True


def create_tables() -> None:
    with connection.schema_editor() as editor:
        for model in (Branch, Account, Savings, Till):
            editor.create_model(model)


def stored_row(pk: int = 1) -> tuple[int, int]:
    """The stored balance and fence."""
    return Account.objects.values_list("balance", "fence").get(pk=pk)


def before_update(do: Any) -> AbstractContextManager[None]:
    """Call `do()` once, between the last check of the lock by a write and its UPDATE."""
    pending = [do]

    def execute(call: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE") and pending:
            pending.pop()()
        return call(sql, params, many, context)

    return connection.execute_wrapper(execute)

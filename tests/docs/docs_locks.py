"""What the examples of howto/locks.md and howto/fencing.md take for granted, and what must hold after them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models

from django_redis_locks import StaleGrant, locks
from tests.docs.examples import Names, after, given
from tests.docs.pages import BLOCKS


@given("howto/locks:fence")
def _() -> Names:
    class Account(models.Model):
        balance = models.IntegerField()
        fence = models.BigIntegerField(default=0)

        class Meta:
            app_label = "shop"
            db_table = "account"

        def __str__(self) -> str:
            return f"{self.balance}, fence {self.fence}"

    apps.all_models["shop"].clear()
    apps.clear_cache()
    shop: Any = ModuleType("shop.models")
    shop.Account = Account
    return {"shop.models": shop, "fixtures": ["accounts"]}


@after("howto/locks:fence")
def _(names: Names) -> None:
    account = names["Account"].objects.get(pk=1)
    assert (account.balance, account.fence) == (90, names["grant"].fence)
    sql = next(block.code for block in BLOCKS if block.page.name == "locks.md" and block.language == "sql")
    with connection.cursor() as cursor:
        for fence, rows in ((account.fence, 1), (account.fence - 1, 0)):
            cursor.execute(sql.replace(":fence", "%(fence)s"), {"fence": fence})
            assert cursor.rowcount == rows


@given("howto/fencing:model")
def _() -> Names:
    return {"fixtures": ["bank"]}


@after("howto/fencing:model")
def _(names: Names) -> None:
    account = names["Account"]
    with connection.schema_editor() as editor:
        editor.create_model(account)
    try:
        account(pk=1, balance=100).save()
        names["withdraw"](1, 10)
        names["pay_interest"](1)
        row = account.objects.get()
        assert row.balance == 91
        assert row.fence > 10**15
        with locks.lock("account:1"):
            account.objects.update(fence=models.F("fence") + 1)
            with pytest.raises(StaleGrant):
                row.save()
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(account)


@after("howto/locks:rlock")
def _(names: Names) -> None:
    assert names["outer"]() > 10**15


@after("howto/locks:hand-over")
def _(names: Names) -> None:
    assert not locks.lock("upload:9").locked()


@after("howto/locks:child-task")
def _(names: Names) -> None:
    assert names["answer"] == "refused"


@after("howto/locks:open")
def _(names: Names) -> None:
    assert names["grant"].held

"""Cache loads inside of transactions, on three databases at two isolation levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection, connections, transaction

from django_redis_locks.cache import get_or_load, get_or_load_many, invalidate
from tests.databases import elsewhere
from tests.django.account_models import Account, create_tables, stored_row
from tests.django.helpers import PATIENCE
from tests.waiting import eventually

LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


def balance() -> int:
    return stored_row()[0]


def load_balance(**options: Any) -> Any:
    return get_or_load("balance", balance, ttl=60, **options)


@pytest.fixture(params=[*LEVELS, "set in the transaction"])
def snapshot(request: pytest.FixtureRequest, database: str, settings: Any, tmp_path: Path) -> str:
    """How a transaction reads a snapshot: by settings, or by its first statement; "" if it doesn't."""
    level = request.param
    options = connections.settings["default"].setdefault("OPTIONS", {})
    if database == "postgresql":
        from psycopg import IsolationLevel

        options["isolation_level"] = IsolationLevel[(level if level in LEVELS else LEVELS[0]).replace(" ", "_")]
    elif level not in LEVELS or (database == "sqlite" and level == LEVELS[0]):
        pytest.skip(f"{database} has no such level")
    elif database == "mariadb":
        options["isolation_level"] = level.lower()
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": tmp_path}
    }
    create_tables()
    Account.objects.create()
    return "" if level == LEVELS[0] else level


def begin(snapshot: str) -> None:
    if snapshot not in ("", *LEVELS):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def test_load_from_a_snapshot_is_not_stored(snapshot: str) -> None:
    """It may be older than an invalidation before the load. The transaction itself gets the value that it loaded."""

    def change() -> None:
        with transaction.atomic():
            Account.objects.update(balance=90)
            invalidate("balance")

    with transaction.atomic():
        begin(snapshot)
        assert balance() == 100
        elsewhere(change).result(PATIENCE)
        assert load_balance() == load_balance() == (100 if snapshot else 90)
        many = get_or_load_many(["balance"], lambda keys: {}, ttl=60)
        assert many == {"balance": 100 if snapshot else 90}
        assert cache.get("balance") is None
    assert cache.get("balance") == (None if snapshot else 90)
    assert load_balance() == 90


def test_claim_ends_when_the_query_of_the_isolation_level_fails(snapshot: str) -> None:
    """[S3] The exception is raised in this transaction; other callers load."""
    if connection.vendor != "postgresql" or snapshot:
        pytest.skip("nothing is asked")

    def refuse(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("SHOW"):
            raise NotImplementedError
        return execute(sql, *args)

    for refused in (load_balance, lambda: get_or_load_many(["balance"], lambda keys: {"balance": 1}, ttl=60)):
        with transaction.atomic(), connection.execute_wrapper(refuse), pytest.raises(NotImplementedError):
            refused()
        assert elsewhere(load_balance).result(PATIENCE) == 100
        invalidate("balance")


def test_isolation_level_is_queried_once_for_many_values(snapshot: str, django_assert_num_queries: Any) -> None:
    with (
        transaction.atomic(),
        django_assert_num_queries(int(connection.vendor == "postgresql" and snapshot not in LEVELS[1:])),
    ):
        get_or_load_many("abc", lambda keys: dict.fromkeys(keys, 1), ttl=60)


def test_loads_from_snapshots_do_not_wait_for_one_another(snapshot: str) -> None:
    """[S1] Their values can't be shared. A stale value is returned without a load."""
    if snapshot not in LEVELS:
        pytest.skip("it isn't known before the load")
    inner: list[Any] = []

    def both() -> int:
        def ask_alone() -> Any:
            with transaction.atomic():
                return load_balance()

        inner.append(elsewhere(ask_alone).result(PATIENCE))
        return balance()

    with transaction.atomic():
        assert get_or_load("balance", both, ttl=60) == 100
    assert inner == [100]
    get_or_load("balance", lambda: 1, ttl=0.001, jitter=0, stale=600)
    with transaction.atomic():
        eventually(lambda: load_balance(stale=600, info=True).source == "stale")
    assert load_balance(stale=600) == 100

"""Loads and invalidations inside of transactions, on a real database that two connections share."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.db import connection, connections, transaction
from django.test import TestCase, override_settings

from django_redis_locks.cache import commits, get_or_load, get_or_load_many, invalidate
from tests.cache.conftest import HERE, THERE, Loader, at, road_at
from tests.contract.matrix import PATIENCE, eventually

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_pending() -> Iterator[None]:
    yield
    assert not commits.any_pending()


def elsewhere(function: Callable[[], Any]) -> Any:
    """What it returns in a thread that has no transaction."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(function())
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    return found[0]


def ask(value: Any, key: str = "k", **options: Any) -> Any:
    return get_or_load(key, Loader(value), **at(HERE), ttl=60, **options)


def failing(first: Callable[[], Any]) -> None:
    first()
    raise ZeroDivisionError


def test_what_is_loaded_in_a_transaction_is_stored_when_it_commits(road: str) -> None:
    """[S6] What others can't see yet isn't in the cache either."""
    with transaction.atomic():
        assert ask("uncommitted") == "uncommitted"
        assert caches[HERE].get("k") is None
        assert ask("again") == "uncommitted"  # this transaction's own
    assert caches[HERE].get("k") == "uncommitted"
    assert ask("later") == "uncommitted"


def test_what_is_rolled_back_never_was(road: str) -> None:
    """[S6] cacheops' dirty transactions."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        failing(lambda: ask("uncommitted"))
    gc.collect()
    eventually(lambda: ask("true", wait=0.05, on_conflict="default", default=None) == "true")
    assert caches[HERE].get("k") == "true"


def test_a_savepoint_that_is_rolled_back(road: str) -> None:
    """[S6] The transaction goes on."""
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            failing(lambda: ask("uncommitted"))
        gc.collect()
        eventually(lambda: ask("true", wait=0.05, on_conflict="default", default=None) == "true")
    assert caches[HERE].get("k") == "true"


def test_others_wait_for_the_commit(road: str) -> None:
    """[S6] In this process and in another one."""
    theirs: list[Any] = []

    def wait_for_it(name: str) -> None:
        theirs.append(get_or_load("k", lambda: "theirs", **at(name), ttl=60, wait=PATIENCE))

    threads = [threading.Thread(target=wait_for_it, args=(name,)) for name in (HERE, THERE)]
    with transaction.atomic():
        ask("uncommitted")
        for thread in threads:
            thread.start()
        eventually(lambda: sum(len(road_at(name).engine._queues) for name in (HERE, THERE)) >= 1)
        assert not theirs
    for thread in threads:
        thread.join(PATIENCE)
    assert theirs == ["uncommitted", "uncommitted"]


def test_an_invalidation_before_the_commit_wins(road: str) -> None:
    """[S1] [S6] What was loaded in the transaction is older than what another one has written since."""
    with transaction.atomic():
        ask("uncommitted")
        elsewhere(lambda: invalidate("k", **at(THERE)))
    assert caches[HERE].get("k") is None


def test_or_is_stored_at_once(road: str) -> None:
    with transaction.atomic():
        ask("value", store_in_atomic="now")
        assert caches[HERE].get("k") == "value"


def test_or_never(road: str) -> None:
    with transaction.atomic():
        ask("value", store_in_atomic="skip")
    assert caches[HERE].get("k") is None
    assert ask("other") == "other"


def test_an_invalidation_waits_for_the_commit(road: str) -> None:
    """[S5] Until then another process would load the old row again, and keep it."""
    ask("old")
    with transaction.atomic():
        invalidate("k", **at(HERE))
        assert elsewhere(lambda: get_or_load("k", lambda: "old row", **at(THERE), ttl=60)) == "old"
    assert caches[HERE].get("k") is None
    assert ask("new") == "new"


def test_an_invalidation_that_is_rolled_back_never_was(road: str) -> None:
    """[S5]"""
    ask("old")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        failing(lambda: invalidate("k", **at(HERE)))
    assert caches[HERE].get("k") == "old"


def test_or_doesnt_wait(road: str) -> None:
    """``immediate=True``"""
    ask("old")
    with transaction.atomic():
        invalidate("k", **at(HERE), immediate=True)
        assert caches[HERE].get("k") is None


def test_what_a_transaction_has_loaded_it_may_invalidate(road: str) -> None:
    """What it loads after that is stored, not what it loaded before."""
    with transaction.atomic():
        assert ask("before") == "before"
        invalidate("k", **at(HERE))
        assert ask("after", wait=5) == "after"
    assert caches[HERE].get("k") is None  # the invalidation came last


def test_a_savepoint_counts_as_one(road: str) -> None:
    with transaction.atomic():
        with transaction.atomic():
            ask("value")
        assert caches[HERE].get("k") is None
    assert caches[HERE].get("k") == "value"


def test_many_in_a_transaction(road: str) -> None:
    """[S6] [S17]"""
    with transaction.atomic():
        found = get_or_load_many(["a", "b"], lambda keys: dict.fromkeys(keys, 1), **at(HERE), ttl=60)
        assert caches[HERE].get_many(["a", "b"]) == {}
        assert get_or_load_many(["a", "b"], lambda keys: dict.fromkeys(keys, 2), **at(HERE), ttl=60) == found
    assert caches[HERE].get_many(["a", "b"]) == {"a": 1, "b": 1}


def test_a_store_that_is_down_at_the_commit(proxied: Any) -> None:
    """The transaction is committed all the same."""
    with transaction.atomic():
        get_or_load("k", lambda: 1, cache=HERE, ttl=60)
        proxied.down()
    assert not connection.in_atomic_block
    proxied.up()


class InsideATestCase(TestCase):
    """``TestCase`` wraps each test in a transaction that is never committed: it doesn't count."""

    def test_it_is_stored_at_once(self) -> None:
        with override_settings(CACHES={"default": {"BACKEND": LOCMEM, "LOCATION": "inside a test case"}}):
            get_or_load("k", lambda: "value", ttl=60)
            assert caches["default"].get("k") == "value"
            invalidate("k")
            assert caches["default"].get("k") is None

"""Transactions, seen from tasks, after clear() and after refresh()."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import caches
from django.db import transaction

from django_redis_locks.cache import aget_or_load, get_or_load, refresh
from django_redis_locks.cache.fences import everything
from tests.cache.conftest import HERE, Loader, at, road_at

pytestmark = pytest.mark.django_db(transaction=True)


def ask(value: Any) -> Any:
    return get_or_load("k", Loader(value), **at(HERE), ttl=60)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_what_a_task_loads_inside_of_a_transaction_is_not_stored(road: str, face: str) -> None:
    """[S6] async_to_sync() within atomic(): its synchronous code runs in this thread, and sees what isn't committed."""
    loader = Loader("uncommitted")

    def fail() -> None:
        with transaction.atomic():
            async_to_sync(aget_or_load)("k", loader if face == "sync" else loader.asynchronously, **at(HERE), ttl=60)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ask("right") == "right"


def test_clear_forgets_what_was_loaded_in_the_transaction(road: str) -> None:
    with transaction.atomic():
        assert ask("before") == "before"
        with everything(road_at(HERE)):
            caches[HERE].clear()
        assert ask("after") == "after"


def test_a_refresh_in_a_transaction_is_what_it_sees_from_then_on(road: str) -> None:
    assert ask("old") == "old"
    with transaction.atomic():
        assert refresh("k", Loader("new"), **at(HERE), ttl=60) == "new"
        assert ask("other") == "new"


def unreadable() -> None:
    raise TypeError("it can't be read")


class Odd:
    def __reduce__(self) -> Any:
        return unreadable, ()


def test_what_cannot_be_read_again_is_returned_all_the_same(road: str) -> None:
    with transaction.atomic():
        first = get_or_load("k", Odd, **at(HERE), ttl=60)
        assert get_or_load("k", Odd, **at(HERE), ttl=60) is first

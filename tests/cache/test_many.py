"""``get_or_load_many`` while others load, invalidate, or have stale values. Its simplest case is in test_every_cache."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_redis_locks.cache import get_or_load_many
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import STALE, Callers
from tests.contract.matrix import PATIENCE, eventually


def test_many_wait_for_a_key_that_another_loads(callers: Callers) -> None:
    """[S17] [V4] It is read again, not loaded again."""
    loading = callers.begin("theirs", key="b")
    asked: list[str] = []

    def loader(keys: list[str]) -> dict[str, str]:
        asked.extend(keys)
        return dict.fromkeys(keys, "mine")

    many = callers.caller().start(get_or_load_many, ["a", "b"], loader, **at(THERE), ttl=60, wait=PATIENCE)
    eventually(lambda: asked)
    assert loading.finish() == "theirs"
    assert many.result(PATIENCE) == {"a": "mine", "b": "theirs"}
    assert asked == ["a"]


def test_many_in_opposite_orders_do_not_deadlock(cache_pair: str) -> None:
    """[S17] No caller waits for one key while it holds another."""
    both = threading.Barrier(2)
    loads: list[str] = []

    def loader(keys: list[str]) -> dict[str, str]:
        loads.extend(keys)
        return {key: key for key in keys}

    def ask(keys: list[str], cache: str) -> Any:
        both.wait(PATIENCE)
        return get_or_load_many(keys, loader, **at(cache), ttl=60, wait=PATIENCE)

    keys = [f"k{number}" for number in range(10)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(ask, keys, HERE), pool.submit(ask, keys[::-1], THERE)
        assert first.result(PATIENCE) == second.result(PATIENCE) == {key: key for key in keys}
    assert sorted(loads) == sorted(keys)


def test_many_load_missing_and_stale_values_together(callers: Callers) -> None:
    """In one call; if it fails, the stale values are there."""
    callers.make_stale()

    def fail(keys: list[str]) -> dict[str, str]:
        raise ValueError(f"no {sorted(keys)}")

    options = {**at(HERE), **STALE, "error_ttl": 0}
    with pytest.raises(ValueError, match=r"no \['k', 'other'\]"):
        callers.call(get_or_load_many, ["k", "other"], fail, **options)
    assert callers.call(get_or_load_many, ["k"], fail, **options) == {"k": "old"}
    found = callers.call(get_or_load_many, ["k", "other"], lambda keys: dict.fromkeys(keys, "new"), **options)
    assert found == {"k": "new", "other": "new"}


def test_many_refresh_stale_values_in_background(callers: Callers) -> None:
    """Missing values are waited for, stale ones aren't."""
    callers.make_stale()
    go, batches = threading.Event(), []

    def in_thread(keys: list[str]) -> dict[str, str]:
        batches.append(keys)
        assert "k" not in keys or go.wait(PATIENCE)
        return dict.fromkeys(keys, "new")

    async def in_task(keys: list[str]) -> dict[str, str]:
        return await asyncio.to_thread(in_thread, keys)

    def ask() -> Any:
        load: Any = in_task if callers.is_async else in_thread
        return callers.call(get_or_load_many, ["k", "other"], load, **at(HERE), **STALE, refresh="thread")

    assert ask() == {"k": "old", "other": "new"}
    go.set()
    eventually(lambda: ask() == {"k": "new", "other": "new"})
    assert sorted(batches) == [["k"], ["other"]]

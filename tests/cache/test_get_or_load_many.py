"""``get_or_load_many`` with concurrent loads and with stale values. The basic case is in test_every_cache.py."""

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


def test_many_wait_for_a_key_that_another_caller_loads(callers: Callers) -> None:
    """[S17] [V4] The key is read when that load has ended, and not loaded again."""
    loading = callers.begin_load("theirs", key="b")
    requested: list[str] = []

    def loader(keys: list[str]) -> dict[str, str]:
        requested.extend(keys)
        return dict.fromkeys(keys, "mine")

    many = callers.caller().start(get_or_load_many, ["a", "b"], loader, **at(THERE), ttl=60, wait=PATIENCE)
    eventually(lambda: requested)
    assert loading.finish() == "theirs"
    assert many.result(PATIENCE) == {"a": "mine", "b": "theirs"}
    assert requested == ["a"]


def test_callers_with_the_same_keys_in_opposite_orders_do_not_deadlock(cache_pair: str) -> None:
    """[S17] No caller waits for a key while it holds the claim of another one."""
    both = threading.Barrier(2)
    loads: list[str] = []

    def loader(keys: list[str]) -> dict[str, str]:
        loads.extend(keys)
        return {key: key for key in keys}

    def get(keys: list[str], cache: str) -> Any:
        both.wait(PATIENCE)
        return get_or_load_many(keys, loader, **at(cache), ttl=60, wait=PATIENCE)

    keys = [f"k{number}" for number in range(10)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(get, keys, HERE), pool.submit(get, keys[::-1], THERE)
        assert first.result(PATIENCE) == second.result(PATIENCE) == {key: key for key in keys}
    assert sorted(loads) == sorted(keys)


def test_many_load_missing_and_stale_values_together(callers: Callers) -> None:
    """In one call of the loader. If it fails, the stale values are returned."""
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
    """The caller waits for missing values and not for stale ones."""
    callers.make_stale()
    gate, batches = threading.Event(), []

    def in_thread(keys: list[str]) -> dict[str, str]:
        batches.append(keys)
        assert "k" not in keys or gate.wait(PATIENCE)
        return dict.fromkeys(keys, "new")

    async def in_task(keys: list[str]) -> dict[str, str]:
        return await asyncio.to_thread(in_thread, keys)

    def get() -> Any:
        load: Any = in_task if callers.is_async else in_thread
        return callers.call(get_or_load_many, ["k", "other"], load, **at(HERE), **STALE, refresh="thread")

    assert get() == {"k": "old", "other": "new"}
    gate.set()
    eventually(lambda: get() == {"k": "new", "other": "new"})
    assert sorted(batches) == [["k"], ["other"]]

"""Loads within loads: none waits for itself, in any order. Loaders block here, so that callers are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import get_or_load, get_or_load_many
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import Callers
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import followers, hold_before_waiting


def ask(key: str, loader: Callable[[], Any], cache: str = HERE, wait: float = PATIENCE) -> Any:
    return get_or_load(key, loader, **at(cache), ttl=60, wait=wait)


def ask_many(key: str, loader: Callable[[], Any]) -> Any:
    keys = [key, f"{key}2"]
    return get_or_load_many(keys, lambda keys: dict.fromkeys(keys, loader()), **at(HERE), ttl=60, wait=PATIENCE)[key]


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.result(2 * PATIENCE) for future in futures]


def test_load_within_its_own_load_is_carried_out(callers: Callers) -> None:
    """[S19] It isn't waited for."""

    def recursive() -> str:
        return f"outer of {get_or_load('k', lambda: 'inner', **at(HERE), ttl=60)}"

    assert callers.value("k", recursive) == "outer of inner"
    assert caches[HERE].get("k") == "outer of inner"


@pytest.mark.parametrize("there", [HERE, THERE], ids=["one-process", "two-processes"])
def test_two_loads_that_need_each_other_both_end(
    cache_pair: str, counted: Any, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S18] A within B and B within A: in one process that is noticed, also if both check at once whether to wait; in two the
    wait ends it."""
    both, about_to_check = threading.Barrier(2), threading.Barrier(2)
    wait = PATIENCE if there == HERE else 0.3
    if there == HERE:
        hold_before_waiting(monkeypatch, lambda: about_to_check.wait(PATIENCE))

    def outer(other: str, cache: str) -> Callable[[], Any]:
        def load() -> Any:
            both.wait(PATIENCE)
            return ask(other, lambda: f"inner {other}", cache, wait)

        return load

    found = in_threads(lambda: ask("a", outer("b", HERE)), lambda: ask("b", outer("a", there), there))
    assert set(found) <= {"inner a", "inner b"}
    assert counted()["nested"] >= (there == HERE)
    assert counted()["timeouts"] == 0 or there == THERE


@pytest.mark.parametrize("within", [ask, ask_many], ids=["one", "many"])
def test_wait_of_an_inner_load_counts_as_the_outer_ones(
    cache_pair: str, counted: Any, within: Callable[..., Any]
) -> None:
    """[S18] A loads C within itself, and C waits for B: so does A."""
    b_loads, c_loads = threading.Event(), threading.Event()

    def of_a() -> str:
        assert b_loads.wait(PATIENCE)
        return str(within("c", of_c))

    def of_c() -> Any:
        c_loads.set()
        return ask("b", lambda: "inner b")

    def of_b() -> Any:
        b_loads.set()
        assert c_loads.wait(PATIENCE)
        eventually(lambda: followers(**at(HERE)))
        return ask("a", lambda: "inner a")

    assert in_threads(lambda: ask("a", of_a), lambda: ask("b", of_b)) == ["inner a"] * 2
    assert (counted()["nested"], counted()["timeouts"]) == (1, 0)

"""Waiting for the load of another caller: wait, on_timeout, wait_stale, copies of results, and nested loads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import LoadTimeout, get_or_load, get_or_load_many
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import PROXIED, STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import followers, hold_before_waiting, waiters_in_store
from tests.proxy import Proxy


def test_short_wait_lets_one_more_caller_load(callers: Callers, counted: Any) -> None:
    """[S12] [V14] One extra caller per lease, which doesn't store; the others keep waiting."""
    loading, extra = callers.begin_load("slow"), Loader("extra", gate=True)
    others = [callers.start("k", extra, wait=0.1, default="default") for _ in range(4)]
    extra.wait()
    eventually(lambda: counted()["timeouts"] == 4)
    loading.loader.gate.set()
    extra.gate.set()
    values = [future.result(PATIENCE).value for future in others]
    assert loading.finish() == "slow"
    assert values.count("extra") == extra.calls == 1
    assert caches[HERE].get("k") == "slow"


def test_end_of_the_wait_raises_or_returns_the_default_by_on_timeout(callers: Callers) -> None:
    """[S12] The default is returned as the same object."""
    loading = callers.begin_load("slow")
    with pytest.raises(LoadTimeout, match="stale="):
        callers.load("k", "mine", wait=0.05, on_timeout="raise")
    for default in (1, True, []):
        found = callers.load("k", "mine", wait=0.05, on_timeout="default", default=default)
        assert found.value is default
        assert found.source == "default"
    loading.finish()


def test_wait_stale_waits_for_a_fresh_value(callers: Callers) -> None:
    callers.make_stale()
    loading = callers.begin_load("new", **STALE)
    waiting = [callers.start("k", Loader("x"), cache=cache, wait_stale=PATIENCE, **STALE) for cache in (HERE, THERE)]
    assert callers.value("k", "x", wait_stale=0.05, **STALE) == "old"
    eventually(lambda: callers.followers() == 1 and waiters_in_store(**at(THERE)))
    assert loading.finish() == "new"
    assert [future.result(PATIENCE).value for future in waiting] == ["new", "new"]


@pytest.mark.parametrize("refresh", ["inline", "thread"])
def test_wait_stale_bounds_the_wait_of_the_loading_caller(callers: Callers, refresh: str) -> None:
    """[S8] Then its load continues in the background. A value that is loaded in time is returned."""
    callers.make_stale()
    options = {**STALE, "refresh": refresh}
    loader = Loader("new", gate=True)
    assert callers.value("k", loader, wait_stale=0.05, **options) == "old"
    loader.gate.set()
    eventually(lambda: callers.value("k", "x", **options) == "new")
    callers.make_stale("j")
    assert callers.value("j", "new", wait_stale=PATIENCE, **options) == "new"


@PROXIED
def test_waiter_occupies_no_connection(callers: Callers, proxy: Proxy) -> None:
    """[S25] It waits in the process, not for a reply, so that no socket timeout ends its wait."""
    loading = callers.begin_load("value")
    waiting = callers.start_waiter()
    eventually(lambda: proxy.fates("load/claim")[1:] and proxy.unanswered == 0)
    assert not waiting.future.done()
    assert loading.finish() == waiting.finish() == "value"


def test_follower_gets_a_copy_of_its_own(callers: Callers) -> None:
    """[S48] A caller that changes its value doesn't change the other callers' values."""
    loading = callers.begin_load(lambda: {"items": []})
    (following,) = callers.follow(loading)
    loading.finish()["items"].append(1)
    assert following.result(PATIENCE).value == {"items": []}


class NotUnpicklable:
    """Can be pickled but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("it can't be read",)


def test_follower_gets_the_same_object_if_it_cannot_be_copied(callers: Callers) -> None:
    """A loaded value never becomes an exception."""
    options: dict[str, Any] = {"store_if": lambda _: False}
    loading = callers.begin_load(NotUnpicklable, **options)
    (following,) = callers.follow(loading, **options)
    assert loading.finish() is following.result(PATIENCE).value


# Loads within loads: no load waits for itself. The loaders block, so that callers are threads


def load_key(key: str, loader: Callable[[], Any], cache: str = HERE, wait: float = PATIENCE) -> Any:
    return get_or_load(key, loader, **at(cache), ttl=60, wait=wait)


def load_many(key: str, loader: Callable[[], Any]) -> Any:
    keys = [key, f"{key}2"]
    return get_or_load_many(keys, lambda keys: dict.fromkeys(keys, loader()), **at(HERE), ttl=60, wait=PATIENCE)[key]


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.result(2 * PATIENCE) for future in futures]


def test_load_of_a_key_within_its_own_loader_runs(callers: Callers) -> None:
    """[S19] It doesn't wait for itself."""

    def recursive() -> str:
        return f"outer of {get_or_load('k', lambda: 'inner', **at(HERE), ttl=60)}"

    assert callers.value("k", recursive) == "outer of inner"
    assert caches[HERE].get("k") == "outer of inner"


@pytest.mark.parametrize("there", [HERE, THERE], ids=["one-process", "two-processes"])
def test_two_loads_that_need_each_other_both_end(
    cache_pair: str, counted: Any, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S18] A within B and B within A. In one process the cycle is detected, even if both check at once; in two
    processes the wait ends it."""
    both, about_to_check = threading.Barrier(2), threading.Barrier(2)
    wait = PATIENCE if there == HERE else 0.3
    if there == HERE:
        hold_before_waiting(monkeypatch, lambda: about_to_check.wait(PATIENCE))

    def outer(other: str, cache: str) -> Callable[[], Any]:
        def load() -> Any:
            both.wait(PATIENCE)
            return load_key(other, lambda: f"inner {other}", cache, wait)

        return load

    found = in_threads(lambda: load_key("a", outer("b", HERE)), lambda: load_key("b", outer("a", there), there))
    assert set(found) <= {"inner a", "inner b"}
    assert counted()["nested"] >= (there == HERE)
    assert counted()["timeouts"] == 0 or there == THERE


@pytest.mark.parametrize("within", [load_key, load_many], ids=["one", "many"])
def test_wait_of_an_inner_load_counts_as_the_outer_ones(
    cache_pair: str, counted: Any, within: Callable[..., Any]
) -> None:
    """[S18] A loads C, which waits for B: so A waits for B, too."""
    b_loads, c_loads = threading.Event(), threading.Event()

    def of_a() -> str:
        assert b_loads.wait(PATIENCE)
        return str(within("c", of_c))

    def of_c() -> Any:
        c_loads.set()
        return load_key("b", lambda: "inner b")

    def of_b() -> Any:
        b_loads.set()
        assert c_loads.wait(PATIENCE)
        eventually(lambda: followers(**at(HERE)))
        return load_key("a", lambda: "inner a")

    assert in_threads(lambda: load_key("a", of_a), lambda: load_key("b", of_b)) == ["inner a"] * 2
    assert (counted()["nested"], counted()["timeouts"]) == (1, 0)

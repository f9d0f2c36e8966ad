"""Waiting for another caller's load: for how long, the result when the wait is over, and the results of a shared load."""

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
    """[S12] [V14] One for each lease, in addition to the first, and not stored; the others go on waiting."""
    loading, extra = callers.begin("slow"), Loader("extra", gate=True)
    others = [callers.start("k", extra, wait=0.1, default="default") for _ in range(4)]
    extra.wait()
    eventually(lambda: counted()["timeouts"] == 4)
    loading.loader.gate.set()
    extra.gate.set()
    values = [future.result(PATIENCE).value for future in others]
    assert loading.finish() == "slow"
    assert values.count("extra") == extra.calls == 1
    assert caches[HERE].get("k") == "slow"


def test_wait_that_ends_raises_or_gives_the_default_by_on_timeout(callers: Callers) -> None:
    """[S12] The default is the caller's own object."""
    loading = callers.begin("slow")
    with pytest.raises(LoadTimeout, match="stale="):
        callers.load("k", "mine", wait=0.05, on_timeout="raise")
    for default in (1, True, []):
        found = callers.load("k", "mine", wait=0.05, on_timeout="default", default=default)
        assert found.value is default
        assert found.source == "default"
    loading.finish()


def test_wait_stale_waits_for_a_fresh_value(callers: Callers) -> None:
    callers.make_stale()
    loading = callers.begin("new", **STALE)
    waiting = [callers.start("k", Loader("x"), cache=cache, wait_stale=PATIENCE, **STALE) for cache in (HERE, THERE)]
    assert callers.value("k", "x", wait_stale=0.05, **STALE) == "old"
    eventually(lambda: callers.followers() == 1 and waiters_in_store(**at(THERE)))
    assert loading.finish() == "new"
    assert [future.result(PATIENCE).value for future in waiting] == ["new", "new"]


@pytest.mark.parametrize("refresh", ["inline", "thread"])
def test_wait_stale_bounds_the_wait_of_the_loading_caller(callers: Callers, refresh: str) -> None:
    """[S8] Its load goes on in the background. One that is in time is returned."""
    callers.make_stale()
    options = {**STALE, "refresh": refresh}
    loader = Loader("new", gate=True)
    assert callers.value("k", loader, wait_stale=0.05, **options) == "old"
    loader.gate.set()
    eventually(lambda: callers.value("k", "x", **options) == "new")
    callers.make_stale("j")
    assert callers.value("j", "new", wait_stale=PATIENCE, **options) == "new"


@PROXIED
def test_waiter_has_no_question_open(callers: Callers, proxy: Proxy) -> None:
    """[S25] It sleeps in the process, not in a reply: no timeout of a socket ends it, and it holds no connection."""
    loading = callers.begin("value")
    waiting = callers.wait_for()
    eventually(lambda: proxy.fates("load/claim")[1:] and proxy.unanswered == 0)
    assert not waiting.future.done()
    assert loading.finish() == waiting.finish() == "value"


def test_follower_gets_a_copy_of_its_own(callers: Callers) -> None:
    """[S48] A caller that changes its value changes no other caller's."""
    loading = callers.begin(lambda: {"items": []})
    (following,) = callers.follow(loading)
    loading.finish()["items"].append(1)
    assert following.result(PATIENCE).value == {"items": []}


class Odd:
    """It can be pickled, but not read again."""

    def __reduce__(self) -> Any:
        return int, ("it can't be read",)


def test_follower_gets_the_leaders_object_if_it_cannot_be_read_again(callers: Callers) -> None:
    """What was loaded is never turned into an exception."""
    loading = callers.begin(Odd, ttl=0)
    (following,) = callers.follow(loading, ttl=0)
    assert loading.finish() is following.result(PATIENCE).value


# Loads within loads: none waits for itself, in any order. Loaders block here, so that callers are threads


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

"""Caches during outages: unreachable stores, lost replies, closed connections; and forks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks import LockBackendError
from django_redis_locks.cache import get_or_load, get_or_load_many, invalidate
from tests.cache.backends import FILES, HERE, THERE, at, redis_locks
from tests.cache.callers import ON_REDIS, PROXIED, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.forks import in_child
from tests.probes.cache import loads_in_flight, write_guard
from tests.probes.tuning import Tune
from tests.proxy import Proxy

LEASE = "{:1:k}:k:load"


@pytest.fixture(autouse=True)
def no_retry(tune: Tune) -> None:
    """A store that is unreachable isn't retried within a test, even on a slow machine."""
    tune(lease_store_backoff=60.0)


@PROXIED
def test_each_process_loads_once_while_the_store_is_down(callers: Callers, proxy: Proxy, counted: Any) -> None:
    """[S45] [S17] Without an error. The store isn't tried by each call, because each one might wait for a timeout. An
    invalidation raises, because its caller must know that it failed."""
    proxy.down()
    loading = callers.begin_load("value")
    following = callers.follow(loading, 4)
    assert loading.finish() == "value"
    results = [loading.future.result(), *(future.result(PATIENCE) for future in following)]
    assert {(result.value, result.source) for result in results} == {("value", "unlocked")}
    assert loading.loader.calls == 1
    assert counted()["down"] >= 1
    down = counted()["down"]
    for _ in range(5):
        callers.load("k", "value")
    assert counted()["down"] == down
    found = callers.call(get_or_load_many, ["a", "b"], lambda keys: dict.fromkeys(keys, 1), cache=HERE, ttl=60)
    assert found == {"a": 1, "b": 1}
    with pytest.raises(LockBackendError):
        callers.call(invalidate, "k", cache=HERE)


@PROXIED
def test_store_that_was_down_is_used_again(callers: Callers, proxy: Proxy, tune: Tune) -> None:
    tune(lease_store_backoff=0.1)
    proxy.down()
    callers.load("k", "value")
    proxy.up()
    eventually(lambda: callers.load("k", "stored").source in ("loaded", "hit"))
    assert caches[HERE].get("k") == "stored"


@PROXIED
def test_value_is_returned_when_the_store_goes_down_during_its_load(callers: Callers, proxy: Proxy) -> None:
    loading = callers.begin_load("value")
    proxy.down()
    assert loading.finish() == "value"


@PROXIED
def test_invalidation_is_repeated_when_its_reply_is_lost(callers: Callers, proxy: Proxy, tune: Tune) -> None:
    tune(invalidation_timeout=PATIENCE)
    callers.load("k", "old")
    proxy.plan("cut", "reply", of="load/invalidate")
    callers.call(invalidate, "k", cache=HERE)
    assert caches[HERE].get("k") is None


@PROXIED
def test_idle_connection_closed_by_the_server_is_no_outage(callers: Callers, proxy: Proxy, counted: Any) -> None:
    """By the server's timeout, or a firewall."""
    callers.load("k", "value")
    for _ in range(3):
        proxy.down()
        proxy.up()
        assert callers.load("k", "other").source == "hit"
    proxy.down()
    proxy.up()
    assert callers.call(get_or_load_many, ["k"], dict.fromkeys, cache=HERE, ttl=60) == {"k": "value"}
    assert counted()["down"] == 0


# The store of leases is down, and the cache isn't on Redis


@pytest.fixture
def leases_down(settings: Any, tmp_path: Any) -> None:
    settings.REDIS_LOCKS = redis_locks("redis://127.0.0.1:1/0")
    settings.CACHES = {HERE: {"BACKEND": FILES, "LOCATION": str(tmp_path)}}


@ON_REDIS
def test_value_is_not_stored_without_the_store_of_leases(callers: Callers, leases_down: None) -> None:
    """Another process, which can reach the store of leases, may have invalidated it. Writes and hits work as before."""
    assert callers.load("k", "value").source == "unlocked"
    assert caches[HERE].get("k") is None
    with write_guard("k", **at(HERE)):
        caches[HERE].set("k", "written")
    assert callers.load("k", "x").source == "hit"
    with pytest.raises(LockBackendError):
        callers.call(invalidate, "k", **at(HERE))
    assert caches[HERE].get("k") is None


# Forks


def test_forked_child_neither_follows_nor_ends_a_load_of_its_parent(redis_pair: str) -> None:
    """[S39] [H18] After a fork during a load the child waits by the store."""
    loader = Loader("parent's", gate=True)
    options: dict[str, Any] = {"wait": 0.1, "on_timeout": "default", "default": 0}

    def child() -> None:
        assert not loads_in_flight(**at(HERE))
        assert get_or_load("k", lambda: "child's", **at(HERE), **options) == 0
        assert get_or_load("other", lambda: "child's", **at(HERE), ttl=60) == "child's"

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(get_or_load, "k", loader, cache=HERE, ttl=60)
        loader.wait()
        in_child(child)
        assert get_or_load("other", lambda: "x", **at(THERE)) == "child's"
        assert get_or_load("k", lambda: "x", cache=THERE, **options) == 0
        loader.gate.set()
        assert loading.result(PATIENCE) == caches[HERE].get("k") == "parent's"

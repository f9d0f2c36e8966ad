"""A store that can't be reached, answers that are lost, and forks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.core.cache import caches

from django_redis_locks import LockBackendError
from django_redis_locks.cache import get_or_load, get_or_load_many, invalidate
from django_redis_locks.cache.fences import writing
from tests.cache.conftest import DUMMY, HERE, THERE, Loader, Stage, at, redis_locks, road_at
from tests.contract.matrix import PATIENCE, eventually
from tests.forks import in_child
from tests.probes.tuning import Tune
from tests.proxy import Proxy

LEASE = "{:1:k}:k:load"


@pytest.fixture(autouse=True)
def not_soon(tune: Tune) -> None:
    """However slow this machine is, a store that is given up isn't asked again in the same test."""
    tune(leases_down_for=60.0)


def test_one_load_in_each_process_while_the_store_is_down(proxied: Proxy, stage: Stage, counted: Any) -> None:
    """[S45] And no error: a cache that is down is slow, not broken."""
    proxied.down()
    loader = Loader("value", gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    others = [stage.start("k", loader, ttl=60) for _ in range(4)]
    eventually(lambda: stage.followers() == 4)
    loader.gate.set()
    found = [future.result(PATIENCE) for future in [first, *others]]
    assert {result.value for result in found} == {"value"}
    assert {result.source for result in found} == {"unlocked"}
    assert loader.calls == 1
    assert counted()["down"] >= 1


def test_a_store_that_is_down_isnt_asked_each_time(proxied: Proxy, stage: Stage, counted: Any) -> None:
    """[S45] Each question might take as long as it takes to give up."""
    proxied.down()
    for _ in range(5):
        stage.load("k", Loader("value"), ttl=60)
    assert counted()["down"] == 1


def test_and_is_asked_again_soon(proxied: Proxy, stage: Stage, tune: Tune) -> None:
    tune(leases_down_for=0.3)
    proxied.down()
    stage.load("k", Loader("value"), ttl=60)
    proxied.up()
    eventually(lambda: stage.load("k", Loader("stored"), ttl=60).source in ("loaded", "hit"))
    assert caches[HERE].get("k") == "stored"


def test_a_store_that_goes_down_during_a_load(proxied: Proxy, stage: Stage) -> None:
    """The value is there: its caller gets it."""
    loader = Loader("value", gate=True)
    loading = stage.start("k", loader, ttl=60)
    loader.wait()
    proxied.down()
    loader.gate.set()
    assert loading.result(PATIENCE).value == "value"


def test_a_lost_invalidation_is_an_error(proxied: Proxy, stage: Stage) -> None:
    """Whoever invalidates must know that it didn't happen."""
    stage.load("k", Loader("old"), ttl=60)
    proxied.down()
    with pytest.raises(LockBackendError):
        stage.call(invalidate, "k", cache=HERE)


def test_an_invalidation_whose_answer_is_lost_is_repeated(proxied: Proxy, stage: Stage, tune: Tune) -> None:
    tune(invalidation_timeout=PATIENCE)
    stage.load("k", Loader("old"), ttl=60)
    proxied.plan("cut", "reply", of="load/fence")
    stage.call(invalidate, "k", cache=HERE)
    assert caches[HERE].get("k") is None


def test_a_claim_whose_answer_is_lost(proxied: Proxy, stage: Stage) -> None:
    """The load goes on without; what may be claimed is freed, so the next one isn't held up for a lease."""
    stage.load("warm", Loader("x"), ttl=60)
    proxied.plan("cut", "reply", of="load/claim", times=9)
    assert stage.load("k", Loader("value"), ttl=60, expire=PATIENCE * 3, wait=0).value == "value"
    proxied.reset()
    direct = redis.Redis.from_url(proxied.url)
    with direct:
        eventually(lambda: not direct.exists(LEASE))


def test_a_store_whose_answer_is_lost(proxied: Proxy, stage: Stage) -> None:
    """It may be stored, or not: the caller has his value."""
    stage.load("warm", Loader("x"), ttl=60)
    proxied.plan("cut", "reply", of="load/store")
    assert stage.load("k", Loader("value"), ttl=60).value == "value"


def test_a_write_goes_on_without_the_store_of_leases(settings: Any, tmp_path: Any, unused_url: str) -> None:
    """[S45] Where only the leases' server is down a cache is written all the same."""
    settings.REDIS_LOCKS = redis_locks(unused_url)
    file = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)}
    settings.CACHES = {"default": {"BACKEND": DUMMY}, HERE: file}
    with writing(road_at(HERE), [road_at(HERE).key("k", None)]):
        caches[HERE].set("k", "written")
    assert get_or_load("k", lambda: "x", **at(HERE)) == "written"


def test_values_are_kept_while_only_the_leases_are_down(
    settings: Any, tmp_path: Any, unused_url: str, stage: Stage
) -> None:
    """[S45] Or every request would load. What is invalidated in this process is noticed."""
    settings.REDIS_LOCKS = redis_locks(unused_url)
    file = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)}
    settings.CACHES = {"default": {"BACKEND": DUMMY}, HERE: file}
    assert stage.load("k", Loader("value"), ttl=60).source == "unlocked"
    assert stage.load("k", Loader("other"), ttl=60).source == "hit"
    old = Loader("old", gate=True)
    loading = stage.start("j", old, ttl=60)
    old.wait()
    with pytest.raises(LockBackendError):
        stage.call(invalidate, "j", **at(HERE))
    old.gate.set()
    loading.result(PATIENCE)
    assert caches[HERE].get("j") is None


@pytest.fixture
def unused_url() -> Iterator[str]:
    """Of a port that refuses connections, because somebody has it and doesn't listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{taken.getsockname()[1]}/0"


def test_many_while_the_store_is_down(proxied: Proxy, stage: Stage) -> None:
    """[S45] [S17]"""
    proxied.down()
    found = stage.call(get_or_load_many, ["a", "b"], lambda keys: dict.fromkeys(keys, 1), cache=HERE, ttl=60)
    assert found == {"a": 1, "b": 1}


def test_a_childs_loads_are_its_own(on_redis: str) -> None:
    """[S39] A fork in the middle of a load: the child joins no flight that doesn't fly there, and waits in the store."""
    loader = Loader("parent's", gate=True)
    loading = threading.Thread(target=get_or_load, args=("k", loader), kwargs={"cache": HERE, "ttl": 60})
    loading.start()
    loader.wait()

    def story() -> None:
        assert not road_at(HERE).flights._flying
        assert get_or_load("k", lambda: "child's", **at(HERE), wait=0.1, on_conflict="default", default=0) == 0
        assert get_or_load("other", lambda: "child's", **at(HERE), ttl=60) == "child's"

    in_child(story)
    loader.gate.set()
    loading.join(PATIENCE)
    assert caches[HERE].get("k") == "parent's"
    assert get_or_load("other", lambda: "x", **at(THERE)) == "child's"


def test_a_child_that_ends_frees_nothing_of_its_parents(on_redis: str) -> None:
    """[S39] [H18]"""
    loader = Loader("parent's", gate=True)
    loading = threading.Thread(target=get_or_load, args=("k", loader), kwargs={"cache": HERE, "ttl": 60})
    loading.start()
    loader.wait()
    in_child(lambda: None)
    assert get_or_load("k", lambda: "x", cache=THERE, wait=0.05, on_conflict="default", default=0) == 0
    loader.gate.set()
    loading.join(PATIENCE)


def test_a_connection_that_was_closed_while_it_lay_idle(proxied: Proxy, stage: Stage, counted: Any) -> None:
    """The server's timeout, or a firewall's: it is no reason to take the store for down."""
    stage.load("k", Loader("value"), ttl=60)
    proxied.down()
    proxied.up()
    for ask in (stage.load, stage.load):
        assert ask("k", Loader("other"), ttl=60).source == "hit"
        proxied.down()
        proxied.up()
    found = stage.call(get_or_load_many, ["k"], dict.fromkeys, cache=HERE, ttl=60)
    assert found == {"k": "value"}
    assert counted()["down"] == 0

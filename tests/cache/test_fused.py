"""Where values are on Redis: what stands there, and how often it is asked."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.core.cache import caches

from django_redis_locks.backends.redis.backend import RedisBackend
from django_redis_locks.cache import get_or_load, get_or_load_many, invalidate
from django_redis_locks.cache.roads import lease_of
from django_redis_locks.core.keys import waiters_of
from tests.cache.conftest import DUMMY, HERE, THERE, Loader, Stage, redis_caches, road_at
from tests.contract.matrix import PATIENCE, eventually
from tests.proxy import Proxy

LEASE = b"{:1:k}:k:load"


@pytest.fixture
def direct(on_redis: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(on_redis) as client:
        yield client


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The commands that were sent since the last call, but for what the janitor sends."""
    sent: list[str] = []
    plain, asynchronous, many = RedisBackend.call, RedisBackend.acall, RedisBackend.call_many

    def note(command: Any) -> None:
        if command.name.startswith("load/") and command.name not in {"load/renew", "load/give_up", "load/unblock"}:
            sent.append(command.name)

    def call(backend: RedisBackend, command: Any) -> Any:
        note(command)
        return plain(backend, command)

    async def acall(backend: RedisBackend, command: Any) -> Any:
        note(command)
        return await asynchronous(backend, command)

    def call_many(backend: RedisBackend, commands: Any, timeout: float) -> Any:
        for command in commands:
            note(command)
        return many(backend, commands, timeout)

    monkeypatch.setattr(RedisBackend, "call", call)
    monkeypatch.setattr(RedisBackend, "acall", acall)
    monkeypatch.setattr(RedisBackend, "call_many", call_many)

    def since() -> list[str]:
        found = list(sent)
        sent.clear()
        return found

    return since


def test_what_it_costs(on_redis: str, stage: Stage, asked: Callable[[], list[str]]) -> None:
    """[S24] A hit is one round trip, a load three, a follower none."""
    stage.load("k", Loader("v"), ttl=60)
    assert asked() == ["load/get", "load/claim", "load/store"]
    stage.load("k", Loader("v"), ttl=60)
    assert asked() == ["load/get"]
    stage.load("k", Loader("v"), ttl=60, stale=5)
    assert asked() == ["load/read"]
    loader = Loader("w", gate=True)
    first = stage.start("other", loader, ttl=60)
    loader.wait()
    asked()
    others = [stage.start("other", loader, ttl=60) for _ in range(5)]
    eventually(lambda: stage.followers() == 5)
    assert asked() == []
    loader.gate.set()
    for future in [first, *others]:
        future.result(PATIENCE)
    assert asked() == ["load/store"]


def test_a_crowd_looks_together(on_redis: str, stage: Stage, asked: Callable[[], list[str]], proxied: Proxy) -> None:
    """[S24] [S50] Who comes while a look is on its way shares the next one, of which he can be sure that it is his."""
    stage.load("k", Loader("v"), ttl=60)
    asked()
    proxied.plan("delay", "request", of="GET", times=2)
    looks = road_at(HERE).looks

    def waits_for_a_look(number: int) -> bool:
        return proxied.holds == 1 and sum(len(look.gates) for look in list(looks._flying.values())) == number

    first = stage.start("k", Loader("x"), ttl=60)
    eventually(lambda: waits_for_a_look(0))
    others = [stage.start("k", Loader("x"), ttl=60) for _ in range(5)]
    eventually(lambda: waits_for_a_look(5))
    proxied.deliver()
    assert first.result(PATIENCE).value == "v"
    eventually(lambda: waits_for_a_look(4))
    proxied.deliver()
    assert {future.result(PATIENCE).value for future in others} == {"v"}
    assert asked() == ["load/get"] * 2


def test_what_many_cost(on_redis: str, stage: Stage, asked: Callable[[], list[str]]) -> None:
    """[S17] One look for all; claims and values in one write each."""
    keys = [f"k{number}" for number in range(20)]
    stage.call(get_or_load_many, keys, lambda keys: dict.fromkeys(keys, 1), cache=HERE, ttl=60)
    assert asked() == ["load/read", *["load/claim"] * 20, *["load/store"] * 20]
    stage.call(get_or_load_many, keys, dict.fromkeys, cache=HERE, ttl=60)
    assert asked() == ["load/read"]


def test_what_stands_there(direct: redis.Redis) -> None:
    """[S27] [S28] The value is the cache's own; the lease has a key of its own, beside it."""
    seen: dict[str, Any] = {}

    def load() -> dict[str, int]:
        seen["keys"] = direct.keys()
        seen["lease"] = direct.get(LEASE)
        seen["left"] = direct.pttl(LEASE)
        return {"n": 1}

    get_or_load("k", load, cache=HERE, ttl=60, stale=30, expire=20, jitter=0)
    assert seen["keys"] == [LEASE]
    format_, kind, token, generation = seen["lease"].split()
    assert (format_, kind, generation) == (b"1", b"load", b"0")
    assert len(token) > 12
    assert 10_000 < seen["left"] <= 20_000
    assert direct.keys() == [b":1:k"]
    assert pickle.loads(direct.get(":1:k")) == {"n": 1}
    assert 80_000 < direct.pttl(":1:k") <= 90_000
    assert caches[HERE].get("k") == {"n": 1}


def test_an_integer_stays_one(direct: redis.Redis) -> None:
    """As Django stores it, so that ``incr`` works."""
    get_or_load("k", lambda: 41, cache=HERE, ttl=60)
    assert direct.get(":1:k") == b"41"
    assert caches[HERE].incr("k") == 42
    assert get_or_load("k", lambda: 0, cache=HERE) == 42


def test_what_others_set_is_a_hit(on_redis: str) -> None:
    caches[HERE].set("k", ["theirs"], None)
    found = get_or_load("k", lambda: "mine", cache=THERE, info=True, stale=60)
    assert (found.value, found.source, found.fresh_for) == (["theirs"], "hit", None)


@pytest.mark.parametrize(
    ("key", "lease"),
    [
        (":1:k", "{:1:k}:k:load"),
        ("app:1:{user:5}:name", "app:1:{user:5}:name{}:k:load"),
        ("a{}b", "{a{}b}:k:load"),
        ("a}b{c", "{a}b{c}:k:load"),
        ("a{b}:k:c", "a{b}:k:c{}:k:load"),
    ],
)
def test_a_lease_is_in_its_values_slot(key: str, lease: str) -> None:
    """[S29] A key's own hash tag counts."""
    assert lease_of(key) == lease
    assert waiters_of(lease) == lease.replace("}:k:load", "}:w:load")


def test_a_lease_bears_all_that_the_value_does(on_redis: str, settings: Any) -> None:
    """[S30] Prefix and version: what the cache tells apart has leases apart."""
    settings.CACHES = {
        "default": {"BACKEND": DUMMY},
        **{name: {**entry, "KEY_PREFIX": name, "VERSION": 7} for name, entry in redis_caches(on_redis).items()},
    }
    loader = Loader("here", gate=True)
    loading = threading.Thread(target=get_or_load, args=("k", loader), kwargs={"cache": HERE})
    loading.start()
    loader.wait()
    assert get_or_load("k", lambda: "there", cache=THERE) == "there"
    assert get_or_load("k", lambda: "other version", cache=HERE, version=8) == "other version"
    loader.gate.set()
    loading.join(PATIENCE)
    assert caches[HERE].get_many(["k"]) == {"k": "here"}
    assert caches[HERE].get("k", version=8) == "other version"


def test_a_cache_with_replicas_is_asked_where_it_is_written(
    make_server: Any, settings: Any, redis_url: str, stage: Stage
) -> None:
    """[S8] Django reads a random replica, which may not have the value yet: then everybody would load it."""
    replica = make_server()
    both = f"{redis_url.replace('/0', '')},{replica.url()}"
    settings.CACHES = {"default": {"BACKEND": DUMMY}, HERE: redis_caches(redis_url)[HERE] | {"LOCATION": both}}
    loader = Loader("value")
    for _ in range(3):
        assert stage.load("k", loader, ttl=60).value == "value"
    assert loader.calls == 1
    assert caches[HERE].get("k") is None  # as Django reads it


def test_a_value_that_vanishes_between_store_and_look_is_loaded_anew(direct: redis.Redis, stage: Stage) -> None:
    """[S26] Evicted: who was woken finds neither value nor load, and loads at once."""
    slow = Loader("evicted", gate=True)
    first = stage.start("k", slow, ttl=60)
    slow.wait()
    second = stage.start("k", Loader("anew"), ttl=60, cache=THERE)
    eventually(lambda: direct.zcard(LEASE.replace(b":k:load", b":w:load")))
    direct.delete(LEASE)  # the server forgot the lease as well
    begin = time.monotonic()
    slow.gate.set()
    assert second.result(PATIENCE).value == "anew"
    assert time.monotonic() - begin < 8
    assert first.result(PATIENCE).value == "evicted"


def test_a_full_server_refuses_the_value_and_not_the_caller(make_server: Any, settings: Any, stage: Stage) -> None:
    """[S46] The value is loaded: whoever asked gets it."""
    server = make_server(maxmemory="3mb", maxmemory_policy="noeviction")
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(server.url())}
    found = stage.load("k", Loader(lambda: b"x" * 5_000_000), ttl=60)
    assert len(found.value) == 5_000_000
    assert stage.load("k2", Loader("small"), ttl=60).value == "small"


def test_a_large_value(on_redis: str, stage: Stage) -> None:
    """[S50] In many pieces, with whatever bytes."""
    value = bytes(range(256)) * 20_000
    stage.load("k", Loader(value), ttl=60)
    assert stage.load("k", Loader("x"), ttl=60, cache=THERE).value == value
    assert caches[HERE].get("k") == value


def test_what_cant_be_read_is_loaded_anew(direct: redis.Redis, stage: Stage, caplog: Any) -> None:
    """Its class is gone since the last release."""
    direct.set(":1:k", b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02no\x94\x8c\x03Cls\x94\x93\x94.")
    assert stage.load("k", Loader("anew"), ttl=60).value == "anew"
    assert "can't be read" in caplog.text
    assert caches[HERE].get("k") == "anew"


def test_a_lease_that_is_something_else(direct: redis.Redis, stage: Stage) -> None:
    """Somebody's key: said in the log, and no reason to have no value."""
    direct.rpush(LEASE, "a list")
    assert stage.load("k", Loader("value"), ttl=60).value == "value"


@pytest.mark.usefixtures("often")
def test_a_renewed_load_outlives_its_lease(direct: redis.Redis, stage: Stage) -> None:
    """[S9] [V6] Nobody else begins."""
    slow, other = Loader("slow", gate=True), Loader("other")
    first = stage.start("k", slow, ttl=60, expire=9)
    slow.wait()
    second = stage.start("k", other, cache=THERE, ttl=60)

    def ends() -> float:
        now = time.monotonic()
        return now + direct.pttl(LEASE) / 1000

    before = ends()
    eventually(lambda: ends() > before + 0.5)
    assert not second.done()
    slow.gate.set()
    assert second.result(PATIENCE).value == first.result(PATIENCE).value == "slow"
    assert other.calls == 0


def test_a_load_that_outlives_its_lease_is_no_error(on_redis: str, stage: Stage, counted: Any) -> None:
    """[S9] [V6] [V10] Its caller gets its value; the cache has the other one's."""
    slow = Loader("slow", gate=True)
    first = stage.start("k", slow, ttl=60, expire=0.1, renew=False)
    slow.wait()
    assert stage.load("k", Loader("other"), cache=THERE, ttl=60).value == "other"
    slow.gate.set()
    assert first.result(PATIENCE).value == "slow"
    assert caches[HERE].get("k") == "other"
    assert counted()["fenced"] == 1


def test_a_load_isnt_renewed_for_ever(on_redis: str, stage: Stage) -> None:
    """``max_hold``: a loader that never returns."""
    endless = Loader("endless", gate=True)
    first = stage.start("k", endless, ttl=60, expire=0.3, max_hold=0.3)
    endless.wait()
    assert stage.load("k", Loader("other"), cache=THERE, ttl=60, wait=20).value == "other"
    endless.gate.set()
    first.result(PATIENCE)


def test_an_invalidated_key_is_gone_at_once(on_redis: str, stage: Stage) -> None:
    get_or_load("k", lambda: 1, cache=HERE, ttl=60)
    stage.call(invalidate, "k", "unknown", cache=THERE)
    assert caches[HERE].get("k") is None

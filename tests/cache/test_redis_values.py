"""Loads with a cache on Redis: keys and values that are stored, and the number of commands."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.core.cache.backends.base import InvalidCacheBackendError

from django_redis_locks import InvalidLockBackend
from django_redis_locks.cache import XFetch, get_or_load, get_or_load_many, invalidate
from tests.cache.backends import DUMMY, FILES, HERE, REDIS, THERE, at, redis_caches
from tests.cache.callers import ON_REDIS, PROXIED, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import before_command, followers, lease_key, readers_waiting, record_load_commands, waiters_key
from tests.probes.tuning import Tune
from tests.proxy import Proxy

LEASE = "{:1:k}:k:load"


@pytest.fixture
def sent_commands(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    return record_load_commands(monkeypatch)


@ON_REDIS
def test_hit_costs_one_round_trip_and_a_load_three(callers: Callers, sent_commands: Callable[[], list[str]]) -> None:
    """[S24] [S17] Concurrent callers share reads, and several keys are one read."""
    callers.load("k", "v")
    assert sent_commands() == ["load/get", "load/claim", "load/store"]
    callers.load("k", "v")
    assert sent_commands() == ["load/get"]
    callers.load("k", "v", stale=5)
    assert sent_commands() == ["load/read"]
    loading = callers.begin_load("w", key="other")
    sent_commands()
    following = [callers.start("other", loading.loader) for _ in range(5)]
    eventually(lambda: callers.followers() == 5)
    assert 1 <= sent_commands().count("load/get") <= 5
    loading.finish()
    for future in following:
        future.result(PATIENCE)
    assert sent_commands() == ["load/store"]
    keys = [f"k{number}" for number in range(20)]
    for expected in (["load/read", *["load/claim"] * 20, *["load/store"] * 20], ["load/read"]):
        callers.call(get_or_load_many, keys, lambda keys: dict.fromkeys(keys, 1), cache=HERE, ttl=60)
        assert sent_commands() == expected


@PROXIED
def test_concurrent_reads_share_a_round_trip(
    callers: Callers, sent_commands: Callable[[], list[str]], proxy: Proxy
) -> None:
    """[S24] [S50] A caller during a read shares the next one, which begins after its call."""
    callers.load("k", "v")
    sent_commands()
    proxy.plan("delay", "request", of="GET", times=2)
    first = callers.start("k", Loader("x"))
    eventually(lambda: (proxy.holds, readers_waiting(**at(HERE))) == (1, 0))
    others = [callers.start("k", Loader("x")) for _ in range(5)]
    eventually(lambda: readers_waiting(**at(HERE)) == 5)
    proxy.deliver()
    assert first.result(PATIENCE).value == "v"
    eventually(lambda: (proxy.holds, readers_waiting(**at(HERE))) == (1, 4))
    proxy.deliver()
    assert {future.result(PATIENCE).value for future in others} == {"v"}
    assert sent_commands() == ["load/get"] * 2


def test_callers_that_wait_for_a_read_without_a_value_sleep_until_its_claim_is_answered(
    redis_pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many threads that run before that would delay the claim."""
    others: list[Future[Any]] = []
    waiting: list[int] = []

    def begin_other() -> None:
        if not others:
            others.append(threads.submit(get_or_load, "k", Loader("x"), cache=HERE))
            eventually(lambda: readers_waiting(HERE) == 1)

    def load() -> str:
        eventually(lambda: (readers_waiting(HERE), followers(HERE)) == (0, 1))
        return "v"

    before_command(monkeypatch, "load/get", begin_other, HERE)
    before_command(monkeypatch, "load/claim", lambda: waiting.append(readers_waiting(HERE)), HERE)
    with ThreadPoolExecutor() as threads:
        assert get_or_load("k", load, cache=HERE) == "v"
        assert others[0].result(PATIENCE) == "v"
    assert waiting == [1]


def test_lease_has_a_key_of_its_own_and_ends_with_the_load(redis_pair: str, redis_client: redis.Redis) -> None:
    """[S27] [S28] [S35] The value is stored in the cache's own format, and its age follows from its expiry."""
    seen: dict[str, Any] = {}

    def load() -> dict[str, int]:
        seen.update(keys=redis_client.keys(), lease=redis_client.get(LEASE), left=redis_client.pttl(LEASE))
        return {"n": 1}

    get_or_load("k", load, cache=HERE, ttl=60, stale=30, early=XFetch(), jitter=0)
    assert seen["keys"] == [LEASE.encode()]
    format_, kind, token, generation = seen["lease"].split()
    assert (format_, kind, generation) == (b"1", b"load", b"0")
    assert len(token) > 12
    assert 0 < seen["left"] <= 5000
    assert redis_client.keys() == [b":1:k"]
    assert pickle.loads(redis_client.get(":1:k")) == {"n": 1}
    assert 80_000 < redis_client.pttl(":1:k") <= 90_000
    assert caches[HERE].get("k") == {"n": 1}


def test_lease_is_in_the_cluster_slot_of_its_value() -> None:
    """[S29] A hash tag in the key is respected."""
    leases = {
        ":1:k": "{:1:k}:k:load",
        "app:1:{user:5}:name": "app:1:{user:5}:name{}:k:load",
        "a{}b": "{a{}b}:k:load",
        "a}b{c": "{a}b{c}:k:load",
        "a{b}:k:c": "a{b}:k:c{}:k:load",
    }
    assert {key: lease_key(key) for key in leases} == leases
    for lease in leases.values():
        assert waiters_key(lease) == lease.replace("}:k:load", "}:w:load")


@ON_REDIS
def test_leases_are_separate_by_prefix_and_version(callers: Callers, settings: Any) -> None:
    """[S30] As the values of the cache are."""
    settings.CACHES = {name: {**entry, "KEY_PREFIX": name, "VERSION": 7} for name, entry in settings.CACHES.items()}
    loading = callers.begin_load("here")
    assert callers.value("k", "there", cache=THERE) == "there"
    assert callers.value("k", "other version", version=8) == "other version"
    assert loading.finish() == caches[HERE].get("k") == "here"
    assert caches[HERE].get("k", version=8) == "other version"


@ON_REDIS
def test_cache_with_replicas_is_read_where_it_is_written(callers: Callers, make_server: Any, settings: Any) -> None:
    """[S8] Django reads from a random replica, which may not have the value yet, so that each caller would load."""
    entry = settings.CACHES[HERE]
    replica = make_server()
    settings.CACHES = {HERE: {**entry, "LOCATION": f"{entry['LOCATION'].replace('/0', '')},{replica.url()}"}}
    loader = Loader("value")
    assert [callers.value("k", loader) for _ in range(3)] == ["value"] * 3
    assert loader.calls == 1
    assert caches[HERE].get("k") is None  # as Django reads it


@ON_REDIS
def test_value_that_vanishes_before_a_waiter_reads_it_is_loaded_again(
    callers: Callers, redis_client: redis.Redis, tune: Tune
) -> None:
    """[S26] As after an eviction: the waiter finds neither value nor lease, and loads when it polls."""
    tune(max_poll_interval=0.2)
    loading = callers.begin_load("evicted")
    second = callers.start("k", Loader("again"), cache=THERE)
    eventually(lambda: redis_client.zcard(waiters_key(LEASE)))
    redis_client.delete(LEASE)  # evicted, too
    loading.loader.gate.set()
    assert second.result(PATIENCE).value == "again"
    assert loading.finish() == "evicted"


@ON_REDIS
def test_value_that_a_full_server_refuses_is_returned(callers: Callers, make_server: Any, settings: Any) -> None:
    """[S46] It was loaded, and isn't stored."""
    server = make_server(maxmemory="3mb", maxmemory_policy="noeviction")
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(server.url())}
    assert len(callers.value("k", lambda: b"x" * 5_000_000)) == 5_000_000
    assert callers.value("k2", "small") == "small"


@ON_REDIS
def test_full_server_still_serves_the_values_that_it_has(callers: Callers, make_server: Any, settings: Any) -> None:
    """A miss, whose claim it refuses, doesn't make hits load."""
    server = make_server(maxmemory_policy="noeviction")
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(server.url())}
    assert callers.value("popular", "cached") == "cached"
    with redis.Redis.from_url(server.url()) as client:
        client.config_set("maxmemory", 1)
    assert callers.load("missing", "loaded").source == "unlocked"
    assert callers.value("popular", "loaded again") == "cached"


@ON_REDIS
def test_value_that_cannot_be_unpickled_is_loaded_again(
    callers: Callers, redis_client: redis.Redis, caplog: Any
) -> None:
    """As when its class was removed by a new release."""
    redis_client.set(":1:k", b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02no\x94\x8c\x03Cls\x94\x93\x94.")
    assert callers.value("k", "again") == "again"
    assert "can't be deserialized" in caplog.text
    assert caches[HERE].get("k") == "again"


@ON_REDIS
def test_lease_key_of_another_type_does_not_prevent_a_load(callers: Callers, redis_client: redis.Redis) -> None:
    redis_client.rpush(LEASE, "a list")
    assert callers.value("k", "value") == "value"


@ON_REDIS
def test_load_that_outlives_its_lease_returns_its_value_and_does_not_store_it(
    callers: Callers, redis_client: redis.Redis, counted: Any
) -> None:
    """[S9] [V6] [V10] The cache has the value of the load that followed."""
    loading = callers.begin_load("slow", max_hold=0)
    redis_client.pexpire(LEASE, 1)
    assert callers.value("k", "other", cache=THERE) == "other"
    assert loading.finish() == "slow"
    assert caches[HERE].get("k") == "other"
    assert counted()["fenced"] == 1


def test_value_set_by_django_is_a_hit_and_a_loaded_integer_can_be_incremented(redis_pair: str) -> None:
    """Values are stored exactly as Django stores them."""
    caches[HERE].set("k", ["theirs"], None)
    found = get_or_load("k", lambda: "mine", cache=THERE, info=True, stale=60)
    assert (found.value, found.source, found.fresh_for) == (["theirs"], "hit", None)
    for cache in (HERE, THERE):
        assert get_or_load("large", lambda: bytes(range(256)) * 20_000, cache=cache) == bytes(range(256)) * 20_000
    get_or_load("number", lambda: 41, cache=HERE, ttl=60)
    assert caches[HERE].incr("number") == 42
    assert get_or_load("number", lambda: 0, cache=HERE) == 42


def test_cache_on_redis_needs_no_redis_locks_and_another_one_does(settings: Any, redis_url: str, tmp_path: Any) -> None:
    """Its leases would have no store."""
    settings.REDIS_LOCKS = {}
    settings.CACHES = {"default": {"BACKEND": REDIS, "LOCATION": redis_url}}
    assert get_or_load("k", lambda: 1, ttl=60, cache=caches["default"]) == caches["default"].get("k") == 1
    settings.CACHES = {"default": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    for call in (lambda: get_or_load("k", lambda: 1), lambda: invalidate("k")):
        with pytest.raises(InvalidLockBackend, match="There is no alias 'default' in REDIS_LOCKS"):
            call()
    with pytest.raises(InvalidCacheBackendError, match="There is no cache 'nowhere'"):
        get_or_load("k", lambda: 1, cache="nowhere")
    with pytest.raises(TypeError, match="cache is an alias of CACHES"):
        get_or_load("k", lambda: 1, cache=5)

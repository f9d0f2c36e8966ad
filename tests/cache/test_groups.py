"""Groups: values that are invalidated together, at the price of one key."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from django.db import transaction

from django_redis_locks.cache import cached, get_or_load, get_or_load_many, invalidate, refresh
from tests.cache.backends import DUMMY, HERE, LOCMEM, THERE, as_tenant, at, with_tenant_keys
from tests.cache.callers import EACH_CACHE, ON_REDIS, STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import record_load_commands

ADA: dict[str, Any] = {"groups": ["user:ada"]}


def invalidate_ada(callers: Callers, cache: str = HERE, *keys: str) -> None:
    callers.call(invalidate, *keys, groups=["user:ada"], **at(cache))


@EACH_CACHE
@pytest.mark.parametrize("options", [{"ttl": 60}, {"ttl": None}, STALE], ids=["plain", "ever", "stale"])
def test_invalidation_of_a_group_invalidates_all_its_values(callers: Callers, options: dict[str, Any]) -> None:
    """Also values with other groups beside it; nothing else."""
    groups = {"mail": ["user:ada", "mail"], "name": ("user:ada",), "bob": ["user:bob"], "none": []}

    def values(value: str) -> list[str]:
        return [callers.value(key, value, groups=groups[key], **options) for key in groups]

    assert values("old") == values("x") == ["old"] * 4
    invalidate_ada(callers)
    assert values("new") == values("x") == ["new", "new", "old", "old"]
    invalidate_ada(callers, THERE, "bob")
    assert [callers.load(key, "newest", groups=groups[key], **options).source for key in groups] == [
        *("loaded", "loaded", "loaded", "hit")
    ]
    callers.call(invalidate, groups=["nobody's"], **at(HERE))


@pytest.mark.parametrize("where", [HERE, THERE], ids=["one-process", "two-processes"])
def test_value_that_began_before_the_invalidation_of_its_group_is_not_served_after_it(
    callers: Callers, counted: Any, where: str
) -> None:
    """Nor is it stored. Its caller gets it."""
    loading = callers.begin_load("old", **ADA)
    invalidate_ada(callers, where)
    later = callers.start("k", Loader("new"), cache=where, **ADA)
    eventually(lambda: callers.followers(where) or later.done() or where == THERE)
    assert loading.finish() == "old"
    assert later.result(PATIENCE).value == "new"
    assert callers.value("k", "x", **ADA) == callers.value("k", "x", cache=THERE, **ADA) == "new"
    assert counted()["fenced"] == 1


def test_caller_of_another_process_waits_for_a_load_with_groups(callers: Callers) -> None:
    loading = callers.begin_load("value", **ADA)
    waiting = callers.start_waiter(**ADA)
    assert loading.finish() == waiting.finish() == "value"


def test_stamp_that_the_cache_dropped_never_returns(callers: Callers) -> None:
    """An eviction costs a load, and makes no old value valid."""
    assert callers.value("k", "old", **ADA) == callers.value("j", "old", **ADA)
    assert caches[HERE].delete("load-group:user:ada")
    assert callers.value("j", "new", **ADA) == "new"
    assert caches[HERE].delete("load-group:user:ada")
    assert callers.value("j", "newer", **ADA) == "newer"
    assert callers.value("k", "new", **ADA) == "new"


@ON_REDIS
def test_stamp_that_is_dropped_when_it_is_made_is_made_again(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the value isn't stored, and the waiting callers load all at once."""
    add, dropped = RedisCache.add, []

    def add_in_vain(cache: RedisCache, key: str, *args: Any, **kwargs: Any) -> bool:
        if key.startswith("load-group:") and not dropped:
            dropped.append(key)
            return True
        return add(cache, key, *args, **kwargs)

    monkeypatch.setattr(RedisCache, "add", add_in_vain)
    loading = callers.begin_load("value", **ADA)
    waiting = callers.start_waiter(**ADA)
    assert loading.finish() == waiting.finish() == "value"
    assert dropped


def test_value_that_was_stored_without_groups_is_loaded_again(callers: Callers) -> None:
    """Its groups at that time aren't known. A caller without groups gets either."""
    assert callers.value("k", "plain") == "plain"
    assert callers.value("k", "grouped", **ADA) == callers.value("k", "x", **ADA) == "grouped"
    assert callers.value("k", "x") == "grouped"
    invalidate_ada(callers)
    assert callers.value("k", "x") == "grouped"


def test_stale_value_of_an_invalidated_group_is_not_served(callers: Callers) -> None:
    callers.make_stale("k", **ADA)
    callers.make_stale("j", **ADA)
    assert callers.value("j", ValueError(), **STALE, **ADA) == "old"
    invalidate_ada(callers)
    with pytest.raises(ZeroDivisionError):
        callers.load("k", ZeroDivisionError(), **STALE, **ADA)
    assert callers.value("k", "new", **STALE, **ADA, refresh="thread") == "new"
    callers.make_stale("i", **ADA)
    assert callers.value("i", "new", **STALE, **ADA) == callers.value("i", "x", **STALE, **ADA) == "new"


def test_groups_of_many_keys_are_read_with_their_values(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function names the groups of each key."""

    def get(value: str) -> dict[str, Any]:
        load = lambda keys: dict.fromkeys(keys, value)  # noqa: E731
        return callers.call(get_or_load_many, ["a", "b"], load, **at(HERE), groups=lambda key: [f"user:{key}"])

    assert get("old") == get("x") == {"a": "old", "b": "old"}
    callers.call(invalidate, groups=["user:a"], **at(HERE))
    assert get("new") == {"a": "new", "b": "old"}
    assert callers.call(refresh, "a", Loader("newest").asynchronously if callers.is_async else lambda: "newest", **at(HERE), groups=["user:a"]) == "newest"  # fmt: skip
    commands = record_load_commands(monkeypatch)
    assert get("x") == {"a": "newest", "b": "old"}
    assert commands() in (["load/read"], [])


@pytest.mark.django_db(transaction=True)
def test_invalidation_of_a_group_in_a_transaction_takes_effect_at_commit(cache_pair: str) -> None:
    """Before that, the transaction itself doesn't see the value that it loaded."""
    options = {**at(HERE), **ADA, "ttl": 60}
    get_or_load("k", lambda: "old", **options)
    with transaction.atomic():
        get_or_load("j", lambda: "old", **options)
        invalidate(groups=["user:ada"], **at(HERE))
        assert get_or_load("j", lambda: "uncommitted", **options) == "uncommitted"
        assert get_or_load("k", lambda: "x", **{**options, **at(THERE)}) == "old"
    assert get_or_load("k", lambda: "new", **options) == "new"
    assert get_or_load("j", lambda: "new", **options) == "new"


def test_groups_of_a_cached_function_are_templates(redis_cache: None) -> None:
    made = []

    @cached("profile:{user}:{lang}", ttl=60, groups=["user:{user}", "lang:{lang}"])
    def profile(user: int, lang: str = "en") -> int:
        made.append((user, lang))
        return len(made)

    assert [profile(1), profile(1, "zh"), *profile.get_many([1, (1, "zh"), 2])] == [1, 2, 1, 2, 3]
    invalidate(groups=["user:1"])
    assert [profile(2), profile(1), *profile.get_many([(1, "zh"), 2])] == [3, 4, 5, 3]
    invalidate(groups=["lang:en"])
    assert [profile(1, "zh"), profile.refresh(1), profile(1), profile(2)] == [5, 6, 6, 7]
    with pytest.raises(TypeError, match="groups of @cached are templates"):
        cached("k", groups=lambda key: [key])


@pytest.mark.parametrize("name", ["a:b", "a b", "a%3Ab", "{a}", "é\n" + 300 * "x"])
def test_group_of_a_template_has_the_name_that_an_f_string_has(cache_pair: str, name: str) -> None:
    """Otherwise an invalidation would find no values, and no error would show it."""
    values = iter(range(2))
    members = cached("members:{team:hash}", ttl=60, groups=["team:{team}"], **at(HERE))(lambda team: next(values))
    assert [members(name), members(name)] == [0, 0]
    invalidate(groups=[f"team:{name}"], **at(HERE))
    assert members(name) == 1


def test_value_is_not_stored_if_the_cache_keeps_no_stamp(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.CACHES = {"default": {"BACKEND": DUMMY}}
    assert [get_or_load("k", lambda value=value: value, **ADA) for value in (1, 2)] == [1, 2]  # type: ignore[misc]
    settings.CACHES = {"default": {"BACKEND": LOCMEM}}
    monkeypatch.setattr(LocMemCache, "add", Mock(side_effect=OSError("no space")))
    assert [get_or_load("k", lambda value=value: value, **ADA) for value in (1, 2)] == [1, 2]  # type: ignore[misc]


def test_groups_belong_to_the_tenant_of_the_caller(cache_pair: str, settings: Any) -> None:
    """Also in a thread in the background, which has no tenant."""
    settings.CACHES = with_tenant_keys({name: settings.CACHES[name] for name in (HERE, THERE)})
    options = {**at(HERE), **ADA, "ttl": 60, "load_timeout": PATIENCE}
    for tenant, before, after in (("a", "old", "new"), ("b", "old", "old")):
        with as_tenant(tenant):
            assert get_or_load("k", lambda: before, **options) == before  # noqa: B023
            if tenant == "a":
                invalidate(**ADA, **at(THERE))
            assert get_or_load("k", lambda: after, **options) == after  # noqa: B023
            assert get_or_load("k", lambda: "x", **options) == after


def test_groups_need_a_cache_that_pickles(settings: Any, redis_url: str) -> None:
    json = {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"}
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_url, "OPTIONS": json}}
    with pytest.raises(TypeError, match="groups need a cache that pickles its values"):
        get_or_load("k", lambda: 1, **ADA)


def test_wrong_groups_are_refused(redis_pair: str, settings: Any) -> None:
    for wrong in ("user:1", [""], [1], 7, None):
        with pytest.raises(ValueError, match="groups are names"):
            get_or_load("k", lambda: 1, cache=HERE, groups=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="groups are names"):
        get_or_load("k", lambda: 1, cache=HERE, groups=lambda key: key)
    for option in ({"stale": 5}, {"replica_lag": 5}):
        with pytest.raises(ValueError, match="are for keys, not for groups"):
            invalidate(groups=["user:1"], cache=HERE, **option)

"""Stale values, early loads, and loaders that fail beside them."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import caches
from django.utils import translation
from freezegun import freeze_time

from django_redis_locks.cache import LoadFailed, XFetch, background, get_or_load, get_or_load_many, invalidate
from django_redis_locks.cache import early as early_module
from django_redis_locks.core import clock
from tests.cache.conftest import HERE, THERE, Loader, Stage, at, road_at
from tests.contract.matrix import PATIENCE, eventually

NOW = {"ttl": 0.05, "jitter": 0.0, "stale": 600}
"""Stale in a moment, and for long."""


def make_stale(stage: Stage, value: Any = "old", **options: Any) -> None:
    stage.load("k", Loader(value), **{**NOW, **options})
    left = 0.05
    begin = clock.now()
    eventually(lambda: clock.now() - begin > left + 0.02)


def test_one_loads_and_the_others_are_served_what_is_stale(road: str, stage: Stage, counted: Any) -> None:
    """[S1a] Nobody waits: neither who asks in this process, nor in another one."""
    make_stale(stage)
    loader = Loader("new", gate=True)
    first = stage.start("k", loader, ttl=60, stale=600)
    loader.wait()
    for cache in (HERE, THERE):
        found = stage.load("k", Loader("other"), ttl=60, stale=600, cache=cache)
        assert (found.value, found.source) == ("old", "stale")
        assert found.fresh_for is not None
        assert found.fresh_for < 0
    loader.gate.set()
    assert first.result(PATIENCE).value == "new"
    assert stage.load("k", Loader("other"), ttl=60, stale=600, cache=THERE).source == "hit"
    assert loader.calls == 1


def test_who_wants_a_fresh_one_may_wait_for_it(road: str, stage: Stage) -> None:
    """``wait_stale``"""
    make_stale(stage)
    loader = Loader("new", gate=True)
    first = stage.start("k", loader, ttl=60, stale=600)
    loader.wait()
    waiting = [
        stage.start("k", Loader("other"), ttl=60, stale=600, wait_stale=PATIENCE, cache=cache)
        for cache in (HERE, THERE)
    ]
    brief = stage.load("k", Loader("other"), ttl=60, stale=600, wait_stale=0.05)
    assert brief.value == "old"
    eventually(lambda: stage.followers() == 1 and len(road_at(THERE).engine._queues) > 0)
    loader.gate.set()
    assert [future.result(PATIENCE).value for future in waiting] == ["new", "new"]
    first.result(PATIENCE)


def test_a_loader_that_fails_leaves_the_stale_value(road: str, stage: Stage, counted: Any) -> None:
    """[S14] [V8] And isn't asked again for a while, here or elsewhere."""
    make_stale(stage)
    loader = Loader(ValueError("no rates today"))
    found = stage.load("k", loader, ttl=60, stale=600, retry_after_error=30)
    assert (found.value, found.source) == ("old", "stale")
    for cache in (HERE, THERE):
        assert stage.load("k", loader, ttl=60, stale=600, cache=cache).value == "old"
    assert loader.calls == 1
    assert counted()["failures"] == 1


def test_and_is_asked_again_after_a_while(road: str, stage: Stage) -> None:
    """[S14]"""
    make_stale(stage)
    loader = Loader(ValueError("no rates today"), "new")
    stage.load("k", loader, ttl=60, stale=600, retry_after_error=0.05)
    eventually(lambda: stage.load("k", loader, ttl=60, stale=600).value == "new")
    assert loader.calls == 2


def test_or_its_error_is_raised(road: str, stage: Stage) -> None:
    """``stale_if_error=False``"""
    make_stale(stage)
    with pytest.raises(ValueError, match="no rates"):
        stage.load("k", Loader(ValueError("no rates")), ttl=60, stale=600, stale_if_error=False)


def test_a_loader_may_fail_without_a_cause_of_its_own(road: str, stage: Stage) -> None:
    """``context.fail()``: the stale value, or an error."""

    def load(context: Any) -> None:
        context.fail(f"half of it is missing, keep {context.stale_value}")

    make_stale(stage)
    assert stage.load("k", load, ttl=60, stale=600).value == "old"
    with pytest.raises(LoadFailed, match="half of it is missing"):
        stage.load("other", load, ttl=60, stale=600)


def test_an_invalidation_during_a_refresh_wins(road: str, stage: Stage) -> None:
    """[S2] A refresh began before it: its claim is void."""
    make_stale(stage)
    loader = Loader("older", gate=True)
    first = stage.start("k", loader, ttl=60, stale=600)
    loader.wait()
    stage.call(invalidate, "k", **at(THERE))
    assert stage.load("k", Loader("new"), ttl=60, stale=600, cache=THERE).value == "new"
    loader.gate.set()
    assert first.result(PATIENCE).value == "older"
    assert stage.load("k", Loader("x"), ttl=60, stale=600).value == "new"


@pytest.mark.parametrize("how", ["thread", "callable"])
def test_a_refresh_in_the_background(road: str, stage: Stage, how: str) -> None:
    """[S37] Whoever finds it stale is served it, too; a callable is given a job that carries the claim."""
    make_stale(stage)
    loader = Loader("new", gate=True)
    jobs: list[Any] = []
    threads: list[threading.Thread] = []

    def hand_over(job: Any) -> None:
        jobs.append(job)
        thread = threading.Thread(target=job.run)
        threads.append(thread)
        thread.start()

    if how == "callable" and stage.is_async:
        pytest.skip("a job is run by threads")
    refresh: Any = "thread" if how == "thread" else hand_over
    assert stage.load("k", loader, ttl=60, stale=600, refresh=refresh).value == "old"
    loader.wait()
    assert stage.load("k", Loader("other"), ttl=60, stale=600, refresh=refresh, cache=THERE).value == "old"
    loader.gate.set()
    eventually(lambda: stage.load("k", Loader("other", "x"), ttl=60, stale=600, refresh=refresh).value == "new")
    assert loader.calls == 1
    for thread in threads:
        thread.join(PATIENCE)


def test_an_invalidation_during_a_refresh_in_the_background_wins(road: str, stage: Stage, counted: Any) -> None:
    """[S2] FusionCache #628: its claim was made before."""
    make_stale(stage)
    loader = Loader("older", gate=True)
    stage.load("k", loader, ttl=60, stale=600, refresh="thread")
    loader.wait()
    stage.call(invalidate, "k", **at(THERE))
    stage.load("k", Loader("new"), ttl=60, stale=600, cache=THERE)
    loader.gate.set()
    eventually(lambda: counted()["fenced"] == 1)
    assert stage.load("k", Loader("x"), ttl=60, stale=600).value == "new"


def test_a_job_that_is_lost_costs_its_lease(road: str, stage: Stage) -> None:
    """[S36] [S37] The broker forgot it: the next one claims."""
    make_stale(stage)
    lost: list[Any] = []
    stage.load("k", Loader("x"), ttl=60, stale=600, refresh=lost.append, expire=0.2)
    eventually(lambda: stage.load("k", Loader("new"), ttl=60, stale=600).value == "new")
    assert lost[0].run() is False  # and comes late


def test_a_job_that_comes_twice_runs_once(on_redis: str) -> None:
    """[S37] The second one finds that the claim isn't in force any more."""
    jobs: list[Any] = []
    get_or_load("k", lambda: "old", cache=HERE, **NOW)
    eventually(lambda: get_or_load("k", lambda: "new", cache=HERE, ttl=60, stale=600, refresh=jobs.append) and jobs)
    assert jobs[0].run() is True
    assert jobs[0].run() is False
    assert caches[HERE].get("k") == "new"


def test_a_broker_that_is_down_is_no_reason_to_stay_stale(on_redis: str) -> None:
    """[S37]"""

    def refuse(job: Any) -> None:
        raise ConnectionError("no broker")

    get_or_load("k", lambda: "old", cache=HERE, **NOW)
    eventually(lambda: get_or_load("k", lambda: "new", cache=HERE, ttl=60, stale=600, refresh=refuse) == "new")


def test_a_thread_has_its_callers_context(on_redis: str) -> None:
    """[S38] His language, and whatever else is in his context."""
    get_or_load("k", lambda: "old", cache=HERE, **NOW)

    def ask() -> Any:
        with translation.override("de"):
            return get_or_load("k", translation.get_language, cache=HERE, ttl=60, stale=600, refresh="thread")

    eventually(lambda: ask() == "de")


def test_early_at_a_fraction_of_the_ttl(road: str, stage: Stage) -> None:
    """Still fresh, and loaded by one all the same."""
    stage.load("k", Loader("old"), ttl=60, jitter=0)
    early = Loader("new", gate=True)
    options = {"ttl": 60, "jitter": 0, "early": 0.0001, "stale": 0}
    if not road_at(HERE).fused:
        stage.load("k2", Loader("old"), **options)
        key = "k2"
    else:
        key = "k"
    begin = clock.now()
    eventually(lambda: clock.now() - begin > 0.05)
    first = stage.start(key, early, **options)
    early.wait()
    found = stage.load(key, Loader("other"), cache=THERE, **options)
    assert (found.value, found.source) == ("old", "hit")
    early.gate.set()
    assert first.result(PATIENCE).value == "new"
    assert early.calls == 1


def test_xfetch_is_the_likelier_the_nearer_the_end() -> None:
    """[S51] The published condition, with what loads of that name took; never before the last quarter."""
    early_module.learn("slow", 2.0)

    def share(name: str, left: float, beta: float = 1.0) -> float:
        return sum(early_module.due(XFetch(beta), name, left, 100.0) for _ in range(4000)) / 4000

    assert share("unknown", 0.001) == 0
    assert share("slow", 50.0) == 0
    assert share("slow", 26.0, beta=1000.0) == 0
    assert 0.30 < share("slow", 2.0) < 0.44  # exp(-1)
    assert 0.55 < share("slow", 1.0) < 0.66  # exp(-1/2)
    assert share("slow", 2.0, beta=4.0) > share("slow", 2.0)


def test_what_xfetch_learns() -> None:
    """[S51] An average of loads; other names are others."""
    early_module.learn("a", 1.0)
    early_module.learn("a", 2.0)
    assert early_module._seconds["a"] == pytest.approx(1.2)
    assert "b" not in early_module._seconds


def test_waits_and_failures_arent_learnt(on_redis: str) -> None:
    """[S51] Only what a loader took that brought a value."""
    with pytest.raises(ValueError, match="x"):
        get_or_load("slow:1", Loader(ValueError("x")), cache=HERE)
    assert "slow" not in early_module._seconds
    get_or_load("slow:2", Loader("v"), cache=HERE)
    assert early_module._seconds["slow"] < PATIENCE


@pytest.mark.parametrize("beta", [0, -1, True, "1", float("inf"), float("nan")])
def test_a_beta_that_is_none(beta: Any) -> None:
    with pytest.raises(ValueError, match="beta is a positive number"):
        XFetch(beta)


def test_many_of_which_some_are_stale(road: str, stage: Stage) -> None:
    """One call for those that are missing or stale; if it fails, the stale ones are there."""
    make_stale(stage)

    def fail(keys: list[str]) -> dict[str, str]:
        raise ValueError(f"no {sorted(keys)}")

    options = {**at(HERE), "ttl": 60, "stale": 600, "retry_after_error": 0, "error_ttl": 0}
    with pytest.raises(ValueError, match=r"no \['k', 'other'\]"):
        stage.call(get_or_load_many, ["k", "other"], fail, **options)
    assert stage.call(get_or_load_many, ["k"], fail, **options) == {"k": "old"}
    found = stage.call(get_or_load_many, ["k", "other"], lambda keys: dict.fromkeys(keys, "new"), **options)
    assert found == {"k": "new", "other": "new"}


def test_many_of_which_some_are_loaded_in_the_background(road: str, stage: Stage) -> None:
    """Those that are missing are waited for, the stale ones aren't."""
    make_stale(stage)
    go, batches = threading.Event(), []

    def in_thread(keys: list[str]) -> dict[str, str]:
        batches.append(keys)
        assert "k" not in keys or go.wait(PATIENCE)
        return dict.fromkeys(keys, "new")

    async def in_task(keys: list[str]) -> dict[str, str]:
        return await asyncio.to_thread(in_thread, keys)

    load: Any = in_task if stage.is_async else in_thread
    options = {**at(HERE), "ttl": 60, "stale": 600, "refresh": "thread"}
    assert stage.call(get_or_load_many, ["k", "other"], load, **options) == {"k": "old", "other": "new"}
    go.set()
    eventually(lambda: stage.call(get_or_load_many, ["k", "other"], load, **options) == {"k": "new", "other": "new"})
    assert sorted(batches) == [["k"], ["other"]]


def test_invalidated_softly(on_redis: str, stage: Stage) -> None:
    """Who takes stale values is served the old one, while one loads."""
    stage.load("k", Loader("old"), ttl=60, stale=600)
    stage.call(invalidate, "k", cache=HERE, stale=600)
    loader = Loader("new", gate=True)
    first = stage.start("k", loader, ttl=60, stale=600)
    loader.wait()
    assert stage.load("k", Loader("x"), ttl=60, stale=600, cache=THERE).value == "old"
    loader.gate.set()
    assert first.result(PATIENCE).value == "new"


def test_while_replicas_lag_nothing_is_kept_for_long(road: str, stage: Stage) -> None:
    """[S7] ``settle``: what is loaded right after may be what a replica still tells."""
    for settle in (0.3, 3.0, 20.0):  # what is loaded after that may be kept
        begin = clock.now()
        stage.call(invalidate, "k", **at(HERE), settle=settle)
        assert stage.load("k", Loader("replica's"), ttl=600, cache=THERE).value == "replica's"
        if clock.now() < begin + settle:
            break
    eventually(lambda: caches[HERE].get("k") is None)
    assert stage.load("k", Loader("new"), ttl=600).value == "new"


def test_while_replicas_lag_a_stale_value_isnt_loaded_again_and_again(on_redis: str, stage: Stage) -> None:
    """[S7] Its end is near only because it settles."""
    stage.call(invalidate, "k", cache=HERE, settle=30)
    loader = Loader("a", "b")
    options: dict[str, Any] = {"ttl": 600, "stale": 600}
    stage.load("k", loader, **options)
    assert stage.load("k", loader, **options).value == "a"
    assert stage.load("k", loader, cache=THERE, **options).value == "a"
    assert loader.calls == 1


def test_values_end_a_little_earlier_than_was_said(on_redis: str) -> None:
    """[S33] Never later: a random share of the ttl less, so that what was loaded together doesn't end together."""
    import redis

    begin = clock.now()
    for number in range(30):
        get_or_load(f"k{number}", lambda: 1, cache=HERE, ttl=100, stale=50, jitter=0.2)
    with redis.Redis.from_url(on_redis) as direct:
        ends = [direct.pttl(f":1:k{number}") for number in range(30)]
    passed = 1000 * (clock.now() - begin)
    assert max(ends) <= 150_000
    assert min(ends) + passed > 129_900
    assert len({end // 1000 for end in ends}) > 5


def test_a_stale_value_is_stale_on_the_servers_clock(on_redis: str, stage: Stage) -> None:
    """[S32] No clock of ours decides, where values are on Redis."""
    stage.load("k", Loader("old"), ttl=60, stale=600, jitter=0)
    with freeze_time(dt.timedelta(hours=1)):
        assert stage.load("k", Loader("new"), ttl=60, stale=600).source == "hit"


def test_where_the_cache_doesnt_tell_its_wall_clock_does(settings: Any) -> None:
    """As Django's caches do: freezegun moves it."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "frozen"}}
    ask: Callable[[Any], Any] = lambda value: get_or_load("k", lambda: value, ttl=60, stale=600, jitter=0, info=True)  # noqa: E731
    with freeze_time() as frozen:
        ask("old")
        frozen.tick(59)
        assert ask("new").source == "hit"
        frozen.tick(2)
        assert ask("new").value == "new"
        frozen.tick(700)
        assert ask("newest").source == "loaded"


def test_a_crowd_of_refreshes(road: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S38] No thread is free for it: whoever found the value stale loads it, in his own thread or task."""
    monkeypatch.setattr(background, "CROWD", 0)
    make_stale(stage)
    loader = Loader("new")
    stage.load("k", loader, ttl=60, stale=600, refresh="thread")
    eventually(lambda: stage.load("k", Loader("x"), ttl=60, stale=600).value == "new")
    stage.load("j", Loader("old"), **NOW)
    eventually(lambda: stage.load("j", lambda: "new", ttl=60, stale=600, refresh="thread").value == "new")

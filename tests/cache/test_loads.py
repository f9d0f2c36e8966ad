"""One load for all who ask, and what is written meanwhile wins: on every road, for threads and tasks."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import LoadFailed, LoadTimeout, get_or_load, get_or_load_many, invalidate, refresh
from django_redis_locks.cache.fences import everything, writing
from tests.cache.conftest import HERE, THERE, Loader, Stage, at, road_at
from tests.contract.matrix import PATIENCE, eventually


def waiting_there(cache: str = THERE) -> bool:
    """Whether a caller waits in the store."""
    return len(road_at(cache).engine._queues) > 0


def test_a_hit_calls_no_loader(road: str, stage: Stage) -> None:
    first, again = Loader({"n": 1}), Loader({"n": 2})
    assert stage.load("k", first, ttl=60).source == "loaded"
    found = stage.load("k", again, ttl=60)
    assert (found.value, found.source, again.calls) == ({"n": 1}, "hit", 0)
    assert caches[HERE].get("k") == {"n": 1}  # the raw value, for everybody


def test_many_callers_of_one_process_load_once(road: str, stage: Stage) -> None:
    """[V1] [S24] Followers ask the store for nothing."""
    loader = Loader("value", gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    others = [stage.start("k", loader, ttl=60) for _ in range(9)]
    eventually(lambda: stage.followers() == 9)
    loader.gate.set()
    results = [future.result(PATIENCE) for future in [first, *others]]
    assert {result.value for result in results} == {"value"}
    assert [result.source for result in results].count("loaded") == 1
    assert loader.calls == 1


def test_callers_of_two_processes_load_once(road: str, stage: Stage) -> None:
    """[V13] Whoever comes second waits in the store, and is woken."""
    loader, other = Loader("value", gate=True), Loader("other")
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    second = stage.start("k", other, cache=THERE, ttl=60)
    eventually(lambda: waiting_there() or stage.followers(THERE))
    loader.gate.set()
    assert first.result(PATIENCE).value == second.result(PATIENCE).value == "value"
    assert (loader.calls, other.calls) == (1, 0)


def test_each_follower_has_a_copy_of_his_own(road: str, stage: Stage) -> None:
    """[S48] What one changes isn't changed for the others."""
    loader = Loader(lambda: {"items": []}, gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    second = stage.start("k", loader, ttl=60)
    eventually(lambda: stage.followers() == 1)
    loader.gate.set()
    first.result(PATIENCE).value["items"].append(1)
    assert second.result(PATIENCE).value == {"items": []}


def test_unless_they_share(road: str, stage: Stage) -> None:
    """[S48] ``share=True``: large values that nobody changes aren't copied."""
    loader = Loader(lambda: {"items": []}, gate=True)
    first = stage.start("k", loader, ttl=60, share=True)
    loader.wait()
    second = stage.start("k", loader, ttl=60, share=True)
    eventually(lambda: stage.followers() == 1)
    loader.gate.set()
    assert first.result(PATIENCE).value is second.result(PATIENCE).value


@pytest.mark.parametrize("cache", [HERE, THERE])
def test_an_invalidation_during_a_load_wins(road: str, stage: Stage, cache: str, counted: Any) -> None:
    """[S1] [V7] [V15] [V24] The loader's own caller sees the old value; the cache never does."""
    old = Loader("old", gate=True)
    loading = stage.start("k", old, ttl=60)
    old.wait()
    stage.call(invalidate, "k", **at(cache))
    new = Loader("new")
    assert stage.load("k", new, ttl=60, cache=cache).value == "new"
    old.gate.set()
    assert loading.result(PATIENCE).value == "old"
    assert caches[HERE].get("k") == "new"
    assert stage.load("k", Loader("later"), ttl=60).value == "new"
    assert counted()["fenced"] == 1


def test_an_invalidation_while_nobody_reads_leaves_nothing(road: str, stage: Stage) -> None:
    """[S1]"""
    old = Loader("old", gate=True)
    loading = stage.start("k", old, ttl=60)
    old.wait()
    stage.call(invalidate, "k", **at(HERE))
    old.gate.set()
    loading.result(PATIENCE)
    assert caches[HERE].get("k") is None


def test_who_followed_a_load_that_was_invalidated_loads_anew(road: str, stage: Stage) -> None:
    """[S3] What he joined was older than the invalidation: it isn't shared."""
    loader = Loader("old", "new", gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    second = stage.start("k", loader, ttl=60)
    eventually(lambda: stage.followers() == 1)
    stage.call(invalidate, "k", **at(HERE))
    loader.gate.set()
    assert first.result(PATIENCE).value == "old"
    assert second.result(PATIENCE).value == "new"
    assert caches[HERE].get("k") == "new"


def test_who_comes_after_an_invalidation_doesnt_join(road: str, stage: Stage) -> None:
    """[S3] Go's Forget."""
    old, new = Loader("old", gate=True), Loader("new")
    first = stage.start("k", old, ttl=60)
    old.wait()
    stage.call(invalidate, "k", **at(HERE))
    assert stage.load("k", new, ttl=60).value == "new"
    old.gate.set()
    first.result(PATIENCE)


@pytest.mark.parametrize("cache", [HERE, THERE])
def test_a_write_during_a_load_wins(road: str, stage: Stage, cache: str) -> None:
    """[S4]"""
    old = Loader("loaded", gate=True)
    loading = stage.start("k", old, ttl=60)
    old.wait()
    writer = road_at(cache)
    with writing(writer, [writer.key("k", None)]):
        caches[cache].set("k", "written")
    old.gate.set()
    assert loading.result(PATIENCE).value == "loaded"
    assert caches[HERE].get("k") == "written"


def test_nobody_loads_while_somebody_writes(road: str, stage: Stage) -> None:
    """[S4] Whoever asks meanwhile gets what is written."""
    writer, loader = road_at(HERE), Loader("loaded")
    with writing(writer, [writer.key("k", None)]):
        loading = stage.start("k", loader, ttl=60, cache=THERE)
        eventually(lambda: waiting_there() or loading.done())
        caches[HERE].set("k", "written")
    assert loading.result(PATIENCE).value == "written"
    assert loader.calls == 0


@pytest.mark.parametrize("cache", [HERE, THERE])
def test_a_cleared_cache_stays_clear(road: str, stage: Stage, cache: str) -> None:
    """[S31] ``clear()`` begins a new generation: what was being loaded isn't stored."""
    old = Loader("old", gate=True)
    loading = stage.start("k", old, ttl=60)
    old.wait()
    with everything(road_at(cache)):
        caches[cache].clear()
    old.gate.set()
    assert loading.result(PATIENCE).value == "old"
    assert caches[HERE].get("k") is None


def test_a_generation_alone_voids_the_loads(road: str, stage: Stage) -> None:
    """[S31] Also where no lease went with the values: a pattern was deleted, or the cache is elsewhere."""
    old = Loader("old", gate=True)
    loading = stage.start("k", old, ttl=60)
    old.wait()
    with everything(road_at(THERE)):
        pass
    assert stage.load("k", Loader("new"), ttl=60, cache=THERE).value == "new"
    old.gate.set()
    loading.result(PATIENCE)
    assert caches[HERE].get("k") == "new"


def test_a_refresh_voids_what_is_being_loaded(road: str, stage: Stage) -> None:
    """[S1] What began before it was called for may be older."""
    old = Loader("old", gate=True)
    loading = stage.start("k", old, ttl=60)
    old.wait()
    assert stage.call(refresh, "k", stage.face(Loader("new")), **at(THERE), ttl=60) == "new"
    old.gate.set()
    loading.result(PATIENCE)
    assert caches[HERE].get("k") == "new"


def test_a_loaders_exception_is_for_all_who_wait(road: str, stage: Stage) -> None:
    """[S13] In one process they share it, as they would have raised it each."""
    loader = Loader(ValueError("no rates today"), gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    others = [stage.start("k", loader, ttl=60) for _ in range(3)]
    eventually(lambda: stage.followers() == 3)
    loader.gate.set()
    for future in [first, *others]:
        with pytest.raises(ValueError, match="no rates today"):
            future.result(PATIENCE)
    assert loader.calls == 1


def test_another_process_is_told_that_a_load_failed(road: str, stage: Stage) -> None:
    """[S13] It waits no second time, and asks nobody."""
    loader, other = Loader(ValueError("no rates today"), gate=True), Loader("other")
    first = stage.start("k", loader, ttl=60, error_ttl=30)
    loader.wait()
    second = stage.start("k", other, cache=THERE, ttl=60)
    eventually(lambda: waiting_there() or stage.followers(THERE))
    loader.gate.set()
    with pytest.raises(ValueError, match="no rates today"):
        first.result(PATIENCE)
    with pytest.raises((LoadFailed, ValueError), match="no rates today"):
        second.result(PATIENCE)
    assert other.calls == 0
    with pytest.raises(LoadFailed, match="ValueError: no rates today"):
        stage.load("k", other, cache=THERE, ttl=60)


def test_a_failure_is_soon_forgotten(road: str, stage: Stage) -> None:
    """[S13] ``error_ttl=0``: the next one tries at once."""
    with pytest.raises(ValueError, match="once"):
        stage.load("k", Loader(ValueError("once")), ttl=60, error_ttl=0)
    assert stage.load("k", Loader("value"), ttl=60, cache=THERE).value == "value"


def test_an_invalidation_forgets_a_failure(road: str, stage: Stage) -> None:
    with pytest.raises(ValueError, match="once"):
        stage.load("k", Loader(ValueError("once")), ttl=60, error_ttl=30)
    stage.call(invalidate, "k", **at(HERE))
    assert stage.load("k", Loader("value"), ttl=60).value == "value"


def test_none_is_a_value(road: str, stage: Stage) -> None:
    """[S15] Who asks for what doesn't exist doesn't ask the database each time."""
    loader = Loader(None, "now it exists")
    assert stage.load("k", loader, ttl=60).value is None
    found = stage.load("k", loader, ttl=60, cache=THERE)
    assert (found.value, found.source) == (None, "hit")
    assert loader.calls == 1


def test_none_isnt_kept_for_long(road: str, stage: Stage) -> None:
    """[S16] It has a ttl of its own."""
    loader = Loader(None, "now it exists")
    stage.load("k", loader, ttl=600, none_ttl=0.05, jitter=0)
    eventually(lambda: stage.load("k", loader, ttl=60).value == "now it exists")


def test_none_need_not_be_kept(road: str, stage: Stage) -> None:
    loader = Loader(None, "now it exists")
    assert stage.load("k", loader, ttl=600, none_ttl=0).value is None
    assert stage.load("k", loader, ttl=60).value == "now it exists"


@pytest.mark.parametrize("ttl", [0, -1, -0.5])
def test_a_value_without_a_ttl_isnt_stored(road: str, stage: Stage, ttl: float) -> None:
    """[S47] And isn't waited for elsewhere; callers of this process share it all the same."""
    loader = Loader("value", gate=True)
    first = stage.start("k", loader, ttl=ttl)
    loader.wait()
    second = stage.start("k", loader, ttl=ttl)
    eventually(lambda: stage.followers() == 1)
    assert stage.load("k", Loader("theirs"), ttl=ttl, cache=THERE).value == "theirs" if HERE != THERE else True
    loader.gate.set()
    assert first.result(PATIENCE).value == second.result(PATIENCE).value == "value"
    assert caches[HERE].get("k") is None


@pytest.mark.parametrize("ttl", [None, 30.5, 86400 * 60])
def test_any_ttl_will_do(road: str, stage: Stage, ttl: Any) -> None:
    """[S47] For ever, a fraction, more than thirty days."""
    stage.load("k", Loader("value"), ttl=ttl)
    assert stage.load("k", Loader("other"), ttl=ttl).source == "hit"


def test_a_load_within_its_own_load(road: str, stage: Stage, counted: Any) -> None:
    """[S19] It is carried out, not waited for."""

    def recursive() -> str:
        return f"outer of {get_or_load('k', lambda: 'inner', **at(HERE), ttl=60)}"

    assert stage.load("k", recursive, ttl=60).value == "outer of inner"
    assert caches[HERE].get("k") == "outer of inner"


def test_two_loads_that_need_each_other(road: str, stage: Stage, counted: Any) -> None:
    """[S18] A within B and B within A, at once: who would wait for himself loads."""
    if stage.is_async:
        pytest.skip("two blocking loaders need two threads")
    both = threading.Barrier(2)

    def outer(other: str) -> Any:
        def load() -> str:
            both.wait(PATIENCE)
            return get_or_load(other, lambda: f"inner {other}", **at(HERE), ttl=60, wait=PATIENCE)

        return load

    first = stage.start("a", outer("b"), ttl=60)
    second = stage.start("b", outer("a"), ttl=60)
    results = {first.result(2 * PATIENCE).value, second.result(2 * PATIENCE).value}
    assert results <= {"inner a", "inner b"}
    assert counted()["nested"] >= 1


def test_two_loads_that_need_each_other_in_two_processes(road: str, stage: Stage) -> None:
    """[S18] There nobody can see it: the wait ends it."""
    if stage.is_async:
        pytest.skip("two blocking loaders need two threads")
    both = threading.Barrier(2)

    def outer(other: str, cache: str) -> Any:
        def load() -> str:
            both.wait(PATIENCE)
            return get_or_load(other, lambda: f"inner {other}", **at(cache), ttl=60, wait=0.3)

        return load

    first = stage.start("a", outer("b", HERE), ttl=60)
    second = stage.start("b", outer("a", THERE), ttl=60, cache=THERE)
    assert first.result(PATIENCE).value in ("inner b", "inner a")
    assert second.result(PATIENCE).value in ("inner b", "inner a")


def test_a_short_wait_lets_one_more_load(road: str, stage: Stage, counted: Any) -> None:
    """[S12] [V14] One for each lease, beside the other one, and not stored; the others go on waiting."""
    slow, extra = Loader("slow", gate=True), Loader("extra", gate=True)
    first = stage.start("k", slow, ttl=60)
    slow.wait()
    others = [stage.start("k", extra, ttl=60, wait=0.1, default="tired of waiting") for _ in range(4)]
    extra.wait()
    eventually(lambda: counted()["timeouts"] == 4)
    slow.gate.set()
    extra.gate.set()
    values = sorted(future.result(PATIENCE).value for future in others)
    assert first.result(PATIENCE).value == "slow"
    assert values.count("extra") == 1
    assert extra.calls == 1
    assert caches[HERE].get("k") == "slow"


def test_or_raises(road: str, stage: Stage) -> None:
    """[S12] ``on_conflict="raise"``"""
    slow = Loader("slow", gate=True)
    first = stage.start("k", slow, ttl=60)
    slow.wait()
    with pytest.raises(LoadTimeout, match="stale="):
        stage.load("k", Loader("mine"), ttl=60, wait=0.05, on_conflict="raise")
    slow.gate.set()
    first.result(PATIENCE)


def test_or_gives_a_default(road: str, stage: Stage) -> None:
    """[S12] ``on_conflict="default"``"""
    slow = Loader("slow", gate=True)
    first = stage.start("k", slow, ttl=60)
    slow.wait()
    found = stage.load("k", Loader("mine"), ttl=60, wait=0.05, on_conflict="default", default=[])
    assert (found.value, found.source) == ([], "default")
    slow.gate.set()
    first.result(PATIENCE)


def test_what_cant_be_pickled_is_an_error(road: str, stage: Stage) -> None:
    """[S46] As the cache's own; nobody loads it again and again."""
    loader = Loader(threading.Lock, gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    second = stage.start("k", loader, ttl=60)
    eventually(lambda: stage.followers() == 1)
    loader.gate.set()
    for future in (first, second):
        with pytest.raises(TypeError, match="cannot pickle"):
            future.result(PATIENCE)
    assert loader.calls == 1


def test_a_loader_may_speak_of_its_value(road: str, stage: Stage) -> None:
    """``LoadContext``: a ttl of its own, or not stored at all."""

    def brief(context: Any) -> str:
        context.ttl = 0.05
        return "brief"

    def unstored(context: Any) -> str:
        context.skip_store()
        return "unstored"

    assert stage.load("k", brief, ttl=600).value == "brief"
    eventually(lambda: caches[HERE].get("k") is None)
    assert stage.load("k", unstored, ttl=600).value == "unstored"
    assert caches[HERE].get("k") is None


def test_what_isnt_stored_is_waited_for_by_nobody(road: str, stage: Stage) -> None:
    """[S40] Else all who want it would load one after the other."""

    def unstored(context: Any) -> str:
        context.skip_store()
        return "unstored"

    stage.load("k", unstored, ttl=600)
    found = stage.load("k", unstored, ttl=600, cache=THERE)
    assert (found.value, found.source) == ("unstored", "unlocked")


def test_many_at_once(road: str, stage: Stage) -> None:
    """[S17] One call for what is missing, in the order of the keys; what the loader doesn't know is None."""
    asked: list[list[str]] = []

    def loader(keys: list[str]) -> dict[str, Any]:
        asked.append(keys)
        return {key: key.upper() for key in keys if key != "d"}

    stage.load("b", Loader("there"), ttl=60)
    found = stage.call(get_or_load_many, ["c", "b", "a", "c", "d"], loader, **at(HERE), ttl=60)
    assert list(found.items()) == [("c", "C"), ("b", "there"), ("a", "A"), ("d", None)]
    assert asked == [["c", "a", "d"]]
    assert stage.call(get_or_load_many, ["a", "b", "c", "d"], loader, **at(THERE), ttl=60) == dict(
        sorted(found.items())
    )
    assert len(asked) == 1
    assert stage.call(get_or_load_many, [], loader, **at(HERE)) == {}


def test_many_wait_for_what_somebody_else_loads(road: str, stage: Stage) -> None:
    """[S17] [V4] It is read again, not loaded again."""
    slow = Loader("theirs", gate=True)
    first = stage.start("b", slow, ttl=60)
    slow.wait()
    asked: list[str] = []

    def loader(keys: list[str]) -> dict[str, str]:
        asked.extend(keys)
        return dict.fromkeys(keys, "mine")

    many = stage.caller().start(get_or_load_many, ["a", "b"], loader, **at(THERE), ttl=60, wait=PATIENCE)
    eventually(lambda: asked)
    slow.gate.set()
    assert many.result(PATIENCE) == {"a": "mine", "b": "theirs"}
    assert first.result(PATIENCE).value == "theirs"
    assert asked == ["a"]


def test_many_in_opposite_orders(road: str, stage: Stage) -> None:
    """[S17] Nobody waits for one while he holds another: no deadlock."""
    if stage.is_async:
        pytest.skip("two blocking loaders need two threads")
    both = threading.Barrier(2)
    loads: list[str] = []

    def loader(keys: list[str]) -> dict[str, str]:
        loads.extend(keys)
        return {key: key for key in keys}

    def ask(keys: list[str], cache: str) -> Any:
        both.wait(PATIENCE)
        return get_or_load_many(keys, loader, **at(cache), ttl=60, wait=PATIENCE)

    keys = [f"k{number}" for number in range(10)]
    first = stage.caller().start(ask, keys, HERE)
    second = stage.caller().start(ask, keys[::-1], THERE)
    assert first.result(PATIENCE) == second.result(PATIENCE) == {key: key for key in keys}
    assert sorted(loads) == sorted(keys)


def test_many_share_a_failure(road: str, stage: Stage) -> None:
    """[S13]"""

    def loader(keys: list[str]) -> dict[str, str]:
        raise ValueError("no rates today")

    with pytest.raises(ValueError, match="no rates today"):
        stage.call(get_or_load_many, ["a", "b"], loader, **at(HERE), ttl=60, error_ttl=0)
    assert stage.call(get_or_load_many, ["a"], dict.fromkeys, **at(THERE), ttl=60) == {"a": None}


def test_many_and_an_invalidation_meanwhile(road: str, stage: Stage) -> None:
    """[S1] [S17] Each value is stored under a claim of its own."""

    def loader(keys: list[str]) -> dict[str, str]:
        with writing(road_at(HERE), [road_at(HERE).key("a", None)]):
            caches[HERE].delete("a")
        return dict.fromkeys(keys, "old")

    assert stage.call(get_or_load_many, ["a", "b"], loader, **at(HERE), ttl=60) == {"a": "old", "b": "old"}
    assert caches[HERE].get_many(["a", "b"]) == {"b": "old"}

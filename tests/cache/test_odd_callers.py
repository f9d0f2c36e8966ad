"""Keys and defaults as callers have them, followers, and loops that end early."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.core.cache import caches
from django.utils.functional import lazystr

from django_redis_locks.cache import (
    LoadContext,
    aget_or_load,
    background,
    get_or_load,
    get_or_load_many,
    invalidate,
    refresh,
)
from django_redis_locks.cache.fences import writing
from django_redis_locks.cache.flights import Landing
from tests.cache.conftest import HERE, THERE, Loader, Stage, at, flights_at, road_at
from tests.contract.matrix import PATIENCE, eventually


@pytest.mark.parametrize("key", [1, 0, lazystr("lazy")], ids=repr)
def test_keys_that_are_no_str(road: str, stage: Stage, key: Any) -> None:
    """As Django's caches take them."""
    assert stage.load(key, Loader("value"), ttl=60).value == "value"
    assert caches[HERE].get(key) == "value"
    many = stage.call(get_or_load_many, [key, "x"], lambda keys: dict.fromkeys(keys, "other"), **at(HERE), ttl=60)
    assert many == {key: "value", "x": "other"}
    stage.call(refresh, key, stage.face(Loader("new")), **at(HERE), ttl=60)
    assert caches[HERE].get(key) == "new"
    stage.call(invalidate, key, **at(HERE))
    assert caches[HERE].get(key) is None


class Row:
    """Equal by its key, as a model's instances are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row)

    def __hash__(self) -> int:
        return 1


def test_each_caller_gets_his_own_default(road: str) -> None:
    with writing(road_at(HERE), [road_at(HERE).key("k", None)]):
        for default in (Row(), Row()):
            options: dict[str, Any] = {"wait": 0, "on_conflict": "default", "default": default}
            assert get_or_load("k", lambda: 1, **at(THERE), **options) is default


def unreadable() -> None:
    raise TypeError("it can't be read")


class Odd:
    def __reduce__(self) -> Any:
        return unreadable, ()


def crowd(loader: Any, and_then: Any) -> list[Any]:
    """One leads, one follows: what each of both got."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(and_then(get_or_load("k", loader, **at(HERE), ttl=60)))
        except TypeError as error:
            found.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: any(flight.gates for flight in flights_at(HERE)))
    loader.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    return found


class Gated:
    """A loader that takes a context."""

    def __init__(self, value: Any) -> None:
        self.gate = threading.Event()
        self.value = value

    def __call__(self, context: LoadContext) -> Any:
        assert self.gate.wait(PATIENCE)
        context.skip_store()
        return self.value()


def test_a_follower_gets_what_cannot_be_read_again(road: str) -> None:
    """What was loaded is never turned into an exception."""
    assert [type(each) for each in crowd(Gated(Odd), lambda value: value)] == [Odd, Odd]


def test_a_follower_does_not_get_what_the_leader_has_changed(road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, copy = threading.Event(), Landing.copy

    def late(self: Landing) -> Any:
        assert changed.wait(PATIENCE)
        return copy(self)

    monkeypatch.setattr(Landing, "copy", late)

    def change(value: list[str]) -> list[str]:
        seen = list(value)
        value.append("changed")
        changed.set()
        return seen

    assert crowd(Gated(lambda: ["value"]), change) == [["value"], ["value"]]


def test_a_loop_that_ends_before_its_leader_began_leaves_no_flight(road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S24] Nobody would ever land it."""
    in_task, begun = background.in_task, []  # type: ignore[var-annotated]

    def cancelled(work: Any) -> Any:
        task = in_task(work)
        if not begun:
            task.cancel()
        begun.append(task)
        return task

    monkeypatch.setattr(background, "in_task", cancelled)

    async def ask() -> None:
        await asyncio.wait_for(aget_or_load("k", lambda: 1, **at(HERE), ttl=60), PATIENCE)

    asyncio.run(ask())
    assert not road_at(HERE).flights._flying

"""The stampede counts what it is meant to count. Nothing here asks how long anything took, but that it took no less than the
loader."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchmarks.adapters.base import Cache, TaskCache
from benchmarks.jobs import Job
from benchmarks.scenarios import hits, stampede

pytestmark = pytest.mark.filterwarnings("ignore:This process .* multi-threaded:DeprecationWarning")  # 3.12 on forks

CROWDS = [
    pytest.param({"processes": 1, "callers": 6}, id="threads"),
    pytest.param({"processes": 2, "callers": 3}, id="processes"),
]


class NoCache(Cache):
    """Everybody loads."""

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        return loader()


class OneAtATime(Cache):
    """One loads, in its process."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.values: dict[str, Any] = {}
        self.lock = threading.Lock()

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        with self.lock:
            if key not in self.values:
                self.values[key] = loader()
            return self.values[key]


class Refusing(OneAtATime):
    """Most of those who ask get an error, and some a wrong value."""

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        if "warm" in key:
            return None
        with self.lock:
            self.values[key] = self.values.get(key, 0) + 1
            if self.values[key] < 5:
                raise ConnectionError
        return "a wrong one"


@pytest.mark.parametrize("crowd", CROWDS)
def test_loads_are_counted_in_all_processes(crowd: dict[str, int], redis_url: str) -> None:
    figures = stampede.Scenario(NoCache, redis_url, **crowd).measure(times=2)
    assert (figures["loads"], figures["errors"]) == (6, 0)
    assert figures["p50"] >= 1000 * stampede.LOADER
    figures = stampede.Scenario(OneAtATime, redis_url, **crowd).measure(times=2)
    assert figures["loads"] == crowd["processes"]


def test_errors_are_counted_per_stampede_by_kind(redis_url: str) -> None:
    figures = stampede.Scenario(Refusing, redis_url, processes=1, callers=6).measure(times=2)
    assert figures["errors"] == 6
    assert figures["kinds"] == {"ConnectionError": 8, "another value": 4}


class Forgetful(Cache):
    """One of those who ask is never answered."""

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        if "warm" not in key and threading.current_thread().name.startswith("Thread-1 "):
            threading.Event().wait()
        return loader()


def test_who_is_never_answered_is_an_error_and_the_last_one(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for patience in (1.0, 20.0):  # to whom others are lost as well they are late
        monkeypatch.setattr(stampede, "PATIENCE", patience)
        monkeypatch.setattr(
            threading, "_counter", iter(range(1, 100)).__next__
        )  # threads are called Thread-1 and so on
        try:
            figures = stampede.Scenario(Forgetful, redis_url, processes=1, callers=3).measure(times=5)
        except EOFError:  # a thread wasn't there when the first stampede was to begin
            continue
        if figures["kinds"] == {stampede.LOST: 1}:
            break
    assert figures["kinds"] == {stampede.LOST: 1}
    assert figures["loads"] == 2


class Unfit(Cache):
    """It can't work at all."""

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        raise LookupError("no such cache")


def test_who_cannot_work_at_all_fails_at_once(redis_url: str) -> None:
    with pytest.raises(RuntimeError, match="LookupError: no such cache"):
        stampede.Scenario(Unfit, redis_url, processes=1, callers=50)


class Tasks(TaskCache):
    """One loads, of all tasks of a loop."""

    async def start(self) -> None:
        self.lock = asyncio.Lock()
        self.values: dict[str, Any] = {}

    async def load(self, key: str, loader: Callable[[], Awaitable[Any]]) -> Any:
        async with self.lock:
            if key not in self.values:
                self.values[key] = await loader()
        return self.values[key]


def test_tasks_stampede_too(redis_url: str) -> None:
    figures = stampede.Scenario(Tasks, redis_url, processes=2, callers=3).measure(times=2)
    assert (figures["loads"], figures["errors"]) == (2, 0)


class Getter(OneAtATime):
    def get(self, key: str) -> Callable[[], Any]:
        return lambda: self.values[key]


class Misses(Getter):
    def get(self, key: str) -> Callable[[], Any]:
        return lambda: None


@pytest.mark.parametrize("size", [0, 10_000])
def test_a_hit_is_one(size: int, redis_url: str) -> None:
    assert hits.Scenario(Getter, redis_url, size=size).measure(seconds=0.01)["us"] > 0
    with pytest.raises(ValueError, match="it isn't a hit"):
        hits.Scenario(Misses, redis_url, size=size)


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("adapter", ["ours-load", "ours-guarded-load", "ours-tasks-load"])
def test_ours_loads_once(adapter: str, crowd: dict[str, int], redis_url: str) -> None:
    with Job(adapter, "stampede", redis_url, None, crowd) as job:
        job.ready()
        figures = job.measure(times=2)
    assert (figures["loads"], figures["kinds"]) == (1, {})


@pytest.mark.parametrize("adapter", ["ours-django-get", "ours-locmem-get", "ours-guarded-get", "ours-guarded-or-set"])
@pytest.mark.parametrize("size", [0, 10_000])
def test_ours_hits(adapter: str, size: int, redis_url: str) -> None:
    with Job(adapter, "hits", redis_url, None, {"size": size}) as job:
        job.ready()
        assert job.measure(seconds=0.01)["us"] > 0

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

THREADS = {"processes": 1, "callers": 6}
PROCESSES = {"processes": 2, "callers": 3}


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


@pytest.mark.parametrize("crowd", [THREADS, PROCESSES], ids=["threads", "processes"])
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


def test_caller_that_is_never_answered_ends_the_measurement_as_an_error(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_cache_that_fails_before_the_stampede_raises(redis_url: str) -> None:
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


def test_stampede_of_tasks_counts_a_load_per_process(redis_url: str) -> None:
    figures = stampede.Scenario(Tasks, redis_url, processes=2, callers=3).measure(times=2)
    assert (figures["loads"], figures["errors"]) == (2, 0)


class Getter(OneAtATime):
    def get(self, key: str) -> Callable[[], Any]:
        return lambda: self.values[key]


class Misses(Getter):
    def get(self, key: str) -> Callable[[], Any]:
        return lambda: None


def test_hits_scenario_measures_hits_and_refuses_misses(redis_url: str) -> None:
    for size in (0, 10_000):
        assert hits.Scenario(Getter, redis_url, size=size).measure(seconds=0.01)["us"] > 0
        with pytest.raises(ValueError, match="it isn't a hit"):
            hits.Scenario(Misses, redis_url, size=size)


@pytest.mark.parametrize(
    ("adapter", "crowd"),
    [("ours-load", THREADS), ("ours-guarded-load", PROCESSES), ("ours-tasks-load", PROCESSES)],
)
def test_our_caches_load_once_in_a_stampede(adapter: str, crowd: dict[str, int], redis_url: str) -> None:
    with Job(adapter, "stampede", redis_url, None, crowd) as job:
        job.ready()
        figures = job.measure(times=2)
    assert (figures["loads"], figures["kinds"]) == (1, {})


@pytest.mark.parametrize(
    ("adapter", "size"),
    [("ours-django-get", 0), ("ours-locmem-get", 10_000), ("ours-guarded-get", 10_000), ("ours-guarded-or-set", 0)],
)
def test_our_caches_hit_in_the_hits_scenario(adapter: str, size: int, redis_url: str) -> None:
    with Job(adapter, "hits", redis_url, None, {"size": size}) as job:
        job.ready()
        assert job.measure(seconds=0.01)["us"] > 0

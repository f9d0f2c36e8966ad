"""The stampede counts what it is meant to count. Nothing here asks how long anything took, but that it took no less than the
loader."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.adapters.base import Cache
from benchmarks.jobs import Job
from benchmarks.scenarios import hits, stampede
from tools.redis_server import RedisServer

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


class Unfit(Cache):
    """It can't work at all."""

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        raise LookupError("no such cache")


@pytest.mark.parametrize("callers", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_loads_are_counted_in_all_processes(callers: dict[str, int], redis_url: str) -> None:
    figures = stampede.Scenario(NoCache, redis_url, **callers).measure(times=2)
    assert (figures["loads"], figures["errors"]) == (6, 0)
    assert figures["p50"] >= 1000 * stampede.LOADER_SECONDS
    figures = stampede.Scenario(OneAtATime, redis_url, **callers).measure(times=2)
    assert figures["loads"] == callers["processes"]


def test_errors_are_counted_per_stampede_by_kind(redis_url: str) -> None:
    figures = stampede.Scenario(Refusing, redis_url, processes=1, callers=6).measure(times=2)
    assert figures["errors"] == 6
    assert figures["kinds"] == {"ConnectionError": 8, "another value": 4}
    with pytest.raises(RuntimeError, match="LookupError: no such cache"):
        stampede.Scenario(Unfit, redis_url, processes=1, callers=50)


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


def test_our_caches_load_once_in_a_stampede_and_hit_afterwards(redis_url: str, redis_server: RedisServer) -> None:
    for adapter, callers in (("load", THREADS), ("guarded-load", PROCESSES), ("tasks-load", PROCESSES)):
        redis_server.flush()
        with Job(f"ours-{adapter}", "stampede", redis_url, None, callers) as job:
            job.ready()
            figures = job.measure(times=2)
        assert (figures["loads"], figures["kinds"]) == (1, {}), adapter
    for adapter, size in (("django-get", 0), ("locmem-get", 10_000), ("guarded-get", 10_000), ("guarded-or-set", 0)):
        with Job(f"ours-{adapter}", "hits", redis_url, None, {"size": size}) as job:
            job.ready()
            assert job.measure(seconds=0.01)["us"] > 0, adapter
    with Job("ours-locmem-load", "misses", redis_url, None, {}) as job:
        job.ready()
        assert job.measure(seconds=0.01)["us"] > 0
        counts = job.measure()
    assert counts["calls"] >= counts["files"] > 1

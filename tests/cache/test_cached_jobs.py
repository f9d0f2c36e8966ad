"""`@cached`: its old values, and their refresh by another process."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import Job, cached
from tests.django.helpers import in_thread
from tests.probes.cache import find_cached_function

jobs: list[Job] = []
called: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_called(redis_cache: None) -> None:
    jobs.clear()
    called.clear()


@cached("report:{year}:{size}", ttl=60, stale=600, refresh=jobs.append)
def report(year: int, size: str = "M") -> str:
    called.append(year)
    return f"{year} {len(called)}"


def grow_old(key: str) -> None:
    assert caches["default"].touch(key, 500)  # less than `stale` is left


def carry_out(job: Job) -> bool:
    """As a worker does."""
    return find_cached_function(job.path).take_over(job.token, job.args, job.kwargs)


def test_worker_finds_the_function_and_carries_the_job_out_once() -> None:
    """[S37] It is claimed by the caller."""
    assert report(2031) == "2031 1"
    grow_old(report.key(2031))
    assert [report(2031), report(year=2031)] == ["2031 1"] * 2
    (job,) = jobs
    assert (job.path, job.args, job.kwargs) == (f"{__name__}:report", (2031,), {})
    assert in_thread(lambda: carry_out(job))
    assert report(2031) == "2031 2"
    assert not in_thread(lambda: carry_out(job))
    assert len(called) == 2


def test_job_of_a_function_that_is_not_found_raises() -> None:
    """[S37] The code of a worker may be older, or newer."""
    for path in ("nowhere:report", f"{__name__}:nothing", f"{__name__}:carry_out", "report", ""):
        with pytest.raises(LookupError, match="does this process run the same code"):
            find_cached_function(path)


def test_soft_invalidation_keeps_the_value_as_stale() -> None:
    """With soft=True for as long as the function's `stale` says; else it is gone."""
    report(2031)
    report.invalidate(2031, soft=True)
    assert report(2031) == "2031 1"
    assert len(jobs) == 1
    report.invalidate(2031)
    assert report(2031) == "2031 2"

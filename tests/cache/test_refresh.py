"""Refreshes of stale values outside of the request: in a thread, or by a job in another process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import caches
from django.utils import translation
from freezegun import freeze_time

from django_redis_locks.cache import Job, cached, get_or_load, get_or_load_many
from tests.cache.backends import HERE, LOCMEM, THERE, as_tenant, at, with_tenant_keys
from tests.cache.callers import STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.django.helpers import in_thread
from tests.probes.cache import limit_background_loads, run_job


def test_refresh_by_a_callable_runs_the_job_once(cache_pair: str) -> None:
    """[S37] The callable receives the job with its claim; a thread runs it. A second run does nothing."""
    get_or_load("k", lambda: "old", **at(HERE), ttl=0.01, jitter=0, stale=600)
    loader = Loader("new", gate=True)
    jobs: list[Any] = []

    def load() -> Any:
        return get_or_load("k", loader, **at(HERE), **STALE, refresh=jobs.append)

    eventually(lambda: load() == "old" and jobs)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(jobs[0].run)
        loader.wait()
        assert get_or_load("k", lambda: "other", **at(THERE), **STALE, refresh=jobs.append) == "old"
        loader.gate.set()
        assert done.result(PATIENCE) is True
    assert (load(), loader.calls, len(jobs)) == ("new", 1, 1)
    assert jobs[0].run() is False
    assert get_or_load("k", lambda: "later", **at(THERE)) == "new"


def test_caller_loads_when_the_broker_is_down(redis_pair: str) -> None:
    """[S37]"""

    def refuse(job: Any) -> None:
        raise ConnectionError("no broker")

    caches[HERE].set("k", "old", 500)  # less than `stale` is left
    assert get_or_load("k", lambda: "new", cache=HERE, **STALE, refresh=refuse) in ("old", "new")
    eventually(lambda: caches[HERE].get("k") == "new")


def test_refresh_in_a_thread_has_the_context_of_its_caller(redis_pair: str) -> None:
    """[S38] Such as the language."""
    caches[HERE].set("k", "old", 500)

    def load() -> Any:
        with translation.override("de"):
            return get_or_load("k", translation.get_language, cache=HERE, **STALE, refresh="thread")

    eventually(lambda: load() == "de")


def test_refresh_in_a_thread_stores_under_the_keys_of_its_caller(cache_pair: str, settings: Any) -> None:
    """[S38] Such as those of its tenant, which is a thread-local."""
    settings.CACHES = with_tenant_keys(settings.CACHES)

    def load(value: str, **options: Any) -> dict[str, Any]:
        options |= {**at(HERE), "jitter": 0, "stale": 600}
        found = get_or_load_many("lm", lambda keys: dict.fromkeys(keys, value), **options)
        return {"k": get_or_load("k", lambda: value, **options), **found}

    with as_tenant("a"):
        load("old", ttl=0.01)
        eventually(lambda: set(load("new", ttl=600, refresh="thread").values()) == {"new"})
    assert caches[HERE].get_many("klm") == {}


def test_refresh_without_a_free_thread_is_done_by_the_caller(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S38]"""
    limit_background_loads(monkeypatch, 0)
    for key, loader in (("k", Loader("new")), ("j", lambda: "new")):
        callers.make_stale(key)
        callers.load(key, loader, **STALE, refresh="thread")
        eventually(lambda key=key: callers.value(key, "x", **STALE) == "new")


def test_staleness_in_locmem_follows_the_wall_clock(settings: Any) -> None:
    """As in Django's caches, so that freezegun works."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM, "LOCATION": "frozen"}}

    def load(value: str) -> Any:
        return get_or_load("k", lambda: value, **STALE, jitter=0, info=True)

    with freeze_time() as frozen:
        load("old")
        frozen.tick(59)
        assert load("new").source == "hit"
        frozen.tick(2)
        assert load("new").value == "new"
        frozen.tick(700)
        assert load("newest").source == "loaded"


jobs: list[Job] = []
called: list[Any] = []


@pytest.fixture(autouse=True)
def no_calls(redis_cache: None) -> None:
    jobs.clear()
    called.clear()


@cached("report:{year}:{size}", ttl=60, stale=600, refresh=jobs.append)
def report(year: int, size: str = "M") -> str:
    called.append(year)
    return f"{year} {len(called)}"


def make_stale(key: str) -> None:
    assert caches["default"].touch(key, 500)  # less than `stale` is left


def test_worker_imports_the_function_and_runs_the_job_once() -> None:
    """[S37] With the claim of the caller."""
    assert report(2031) == "2031 1"
    make_stale(report.key(2031))
    assert [report(2031), report(year=2031)] == ["2031 1"] * 2
    (job,) = jobs
    assert (job.path, job.args, job.kwargs) == (f"{__name__}:report", (2031,), {})
    assert in_thread(lambda: run_job(job))
    assert report(2031) == "2031 2"
    assert not in_thread(lambda: run_job(job))
    assert len(called) == 2


def test_job_of_an_unknown_function_raises() -> None:
    """[S37] As with a worker that runs another release."""
    for path in ("nowhere:report", f"{__name__}:nothing", f"{__name__}:grow_old", "report", ""):
        with pytest.raises(LookupError, match="does this process run the same code"):
            run_job(Job(path))


def test_invalidation_with_stale_keeps_the_old_value_as_stale() -> None:
    """For the `stale` of the function; without stale=True it is deleted."""
    report(2031)
    with pytest.raises(ValueError, match="stale is True or False here, not 5"):
        report.invalidate(2031, stale=5)  # type: ignore[arg-type]
    report.invalidate(2031, stale=True)
    assert report(2031) == "2031 1"
    assert len(jobs) == 1
    report.invalidate(2031)
    assert report(2031) == "2031 2"

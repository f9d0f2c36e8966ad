"""``load_timeout`` limits the wait for any load, and ``default`` is returned where there is no value."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.core.cache import caches
from django.db import transaction

from django_redis_locks.cache import LoadFailed, LoadTimeout, get_or_load, get_or_load_many, refresh
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import limit_timed_loads

BRIEF: dict[str, Any] = {"load_timeout": 0.05}


def test_load_timeout_bounds_the_wait_for_ones_own_load_and_for_that_of_others(callers: Callers, counted: Any) -> None:
    """No other caller loads meanwhile, whatever ``on_timeout`` is. The load continues, and stores its value."""
    loader = Loader("slow", gate=True)
    found = callers.load("k", loader, **BRIEF, default="default")
    assert (found.value, found.source, found.waited > 0) == ("default", "default", True)
    loader.wait()
    for cache in (HERE, THERE):
        with pytest.raises(LoadTimeout, match="load_timeout"):
            callers.load("k", loader, **BRIEF, cache=cache)
    assert (loader.calls, counted()["timeouts"]) == (1, 3)
    loader.gate.set()
    eventually(lambda: caches[HERE].get("k") == "slow")
    assert callers.load("intime", "value", load_timeout=PATIENCE).source == "loaded"
    with pytest.raises(ZeroDivisionError):
        callers.load("fails", ZeroDivisionError(), load_timeout=PATIENCE)


def test_caller_with_a_stale_value_gets_it_after_load_timeout(callers: Callers) -> None:
    """[S8] Its load continues. ``wait_stale`` doesn't extend the time."""
    for key, wait_stale in (("k", 0), ("j", PATIENCE)):
        callers.make_stale(key)
        loader = Loader("new", gate=True)
        assert callers.value(key, loader, **BRIEF, **STALE, wait_stale=wait_stale) == "old"
        loader.gate.set()
        eventually(lambda key=key: callers.value(key, "x", **STALE) == "new")


def test_load_timeout_of_many_bounds_the_whole_call(callers: Callers) -> None:
    """Also if another caller loads some of the keys. Cached values are returned."""
    callers.load("cached", "value")
    others = [callers.begin_load("theirs", key=key, cache=THERE) for key in ("b", "c")]
    gate = threading.Event()

    def load(keys: list[str]) -> dict[str, str]:
        assert gate.wait(PATIENCE)
        return dict.fromkeys(keys, "mine")

    def get(**options: Any) -> Any:
        return callers.call(get_or_load_many, ["a", "b", "cached", "c"], load, **at(HERE), **BRIEF, **options)

    assert get(default=0) == {"a": 0, "b": 0, "cached": "value", "c": 0}
    with pytest.raises(LoadTimeout):
        get()
    gate.set()
    assert [other.finish() for other in others] == ["theirs"] * 2
    eventually(lambda: get(default=0) == {"a": "mine", "b": "theirs", "cached": "value", "c": "theirs"})


HANGING_LOADS = """
import atexit, threading
import django
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}})
django.setup()
from django_redis_locks.cache import get_or_load

hang, began, ends = threading.Event().wait, threading.Event(), threading.Event()
assert get_or_load("hangs", hang, ttl=60, load_timeout=0.05, default="default") == "default"
get_or_load("stale", lambda: "old", ttl=0.001, jitter=0, stale=600)
while not began.wait(0.01):
    get_or_load("stale", lambda: began.set() or hang(), ttl=60, stale=600, refresh="thread")
almost_done = lambda: print(ends.wait(), hang(0.05), flush=True)
get_or_load("ends", almost_done, ttl=60, load_timeout=0.05, default="default")
atexit.register(ends.set)
"""


def test_loads_that_hang_end_with_the_process() -> None:
    """Also refreshes in a thread. A load that is almost done ends before the process does."""
    command = [sys.executable, "-c", HANGING_LOADS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True False\n", "")


@pytest.mark.django_db(transaction=True)
def test_load_with_a_timeout_runs_where_it_sees_what_its_caller_sees(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a transaction or another load it runs in the thread of its caller, and if too many are running."""
    load = threading.get_ident
    options = {**at(HERE), "load_timeout": PATIENCE}
    assert get_or_load("alone", load, **options) != load()
    inner, outer = get_or_load("outer", lambda: (get_or_load("inner", load, **options), load()), **options)
    assert inner == outer != load()
    many = get_or_load_many(["a"], lambda keys: dict.fromkeys(keys, load()), **options)
    assert many["a"] != load()
    with transaction.atomic():
        assert get_or_load("k", load, **options) == load()
        many = get_or_load_many(["b"], lambda keys: dict.fromkeys(keys, load()), **options)
        assert many["b"] == load()
    limit_timed_loads(monkeypatch, 0)
    assert get_or_load("full", load, **options) == load()


def test_default_is_returned_if_the_loader_fails(callers: Callers, caplog: pytest.LogCaptureFixture) -> None:
    """Also to followers and while the failure is remembered. It isn't stored, is logged once, and a stale value
    precedes. ``refresh`` raises."""
    options: dict[str, Any] = {"default": "default", "error_ttl": 30}
    loading = callers.begin_load(ValueError("no rates"), **options)
    (following,) = callers.follow(loading, **options)
    assert (loading.finish(), following.result(PATIENCE).source) == ("default", "default")
    assert callers.value("k", "x", cache=THERE, **options) == "default"
    with pytest.raises(LoadFailed):
        callers.load("k", "x", cache=THERE, error_ttl=30)
    assert [record.levelno for record in caplog.records if "The default of 'k'" in record.message] == [logging.WARNING]
    callers.make_stale("j")
    assert callers.value("j", ValueError(), default="default", **STALE) == "old"
    callers.make_stale("i")
    assert callers.value("i", ValueError(), default="default", stale_if_error=False, **STALE) == "default"

    def fail(keys: list[str]) -> dict[str, str]:
        raise ValueError(keys)

    assert callers.call(get_or_load_many, ["a", "b"], fail, **at(HERE), default=[]) == {"a": [], "b": []}
    with pytest.raises(ValueError, match="now"):
        callers.call(refresh, "k", callers.loader(Loader(ValueError("now"))), **at(HERE), default=[])

"""What a load is told, and what of it can't be."""

from __future__ import annotations

import datetime as dt
import sys
import threading
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.core.cache.backends.base import InvalidCacheBackendError

from django_redis_locks import InvalidLockBackend
from django_redis_locks.cache import XFetch, get_or_load, invalidate
from django_redis_locks.cache.early import XFetch as Early
from django_redis_locks.cache.flights import Flights
from django_redis_locks.cache.options import LoadOptions, options
from tests.cache.conftest import DUMMY, HERE, THERE, Loader, Stage, redis_caches, road_at
from tests.contract.matrix import PATIENCE, eventually
from tests.proxy import Proxy


def test_the_same_options_are_read_once() -> None:
    """[S34] And nobody can change them for another call."""
    one = options({"ttl": 60, "stale": 5})
    assert options({"stale": 5, "ttl": 60}) == one
    with pytest.raises(FrozenInstanceError):
        one.ttl = 1  # type: ignore[misc]


def test_true_isnt_one_second() -> None:
    """A cache of checked options that took True for 1 would let it pass the second time."""
    options({"stale": 1})
    with pytest.raises(ValueError, match="stale must be seconds"):
        options({"stale": True})


def test_what_isnt_hashable_is_checked_each_time() -> None:
    assert options({"default": []}).default == []


def test_times() -> None:
    half = dt.timedelta(seconds=0.5)
    made = options({"ttl": half, "stale": half, "wait": half, "expire": half, "error_ttl": half, "max_hold": half})
    assert (made.ttl, made.stale, made.wait, made.expire, made.error_ttl, made.max_hold) == (
        0.5,
        0.5,
        0.5,
        500,
        0.5,
        0.5,
    )
    assert options({"ttl": None}).ttl is None
    assert options({"wait": -1}).wait == float("inf")
    assert options({"max_hold": None}).max_hold == float("inf")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ttl": "60"}, "ttl is a number of seconds"),
        ({"ttl": True}, "ttl is a number of seconds"),
        ({"ttl": float("nan")}, "ttl is a number of seconds"),
        ({"stale": -1}, "stale must be 0 or more"),
        ({"stale": "5"}, "stale must be seconds"),
        ({"early": 0}, "early is None, a fraction"),
        ({"early": 1}, "early is None, a fraction"),
        ({"early": True}, "early is None, a fraction"),
        ({"early": XFetch}, "early is None, a fraction"),
        ({"early": 0.5, "ttl": None}, "early needs a ttl"),
        ({"refresh": "later"}, "refresh is 'inline' or 'thread' or 'celery', or a callable"),
        ({"wait": -2}, "wait must be 0 or more"),
        ({"on_conflict": "skip"}, "on_conflict is 'load' or 'default' or 'raise'"),
        ({"expire": 0}, "expire must be between"),
        ({"expire": -1}, "expire must be between"),
        ({"renew": 1}, "renew is True or False"),
        ({"jitter": 1}, "jitter is a fraction"),
        ({"jitter": -0.1}, "jitter is a fraction"),
        ({"store_in_atomic": "maybe"}, "store_in_atomic is 'on_commit'"),
        ({"share": None}, "share is True or False"),
    ],
)
def test_what_is_out_of_its_range(given: dict[str, Any], said: str) -> None:
    for _ in range(2):  # an error isn't remembered as an answer
        with pytest.raises(ValueError, match=said):
            get_or_load("k", lambda: 1, **given)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("timeout", "ttl"),
        ("lease", "expire"),
        ("on_timeout", "on_conflict"),
        ("stael", "stale"),
        ("lock_timeout", "wait"),
    ],
)
def test_what_other_libraries_call_it(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"no option '{name}'; did you mean {meant}="):
        get_or_load("k", lambda: 1, **{name: 5})
    with pytest.raises(TypeError, match="there are ttl, stale"):
        get_or_load("k", lambda: 1, xyzzy=5)


def test_every_option_is_checked() -> None:
    """One that isn't would be found by whoever loads."""
    from django_redis_locks.cache import options as module

    assert set(module.NAMES) - set(module._CHECKS) == {"default"}


def test_it_is_the_same_xfetch() -> None:
    assert XFetch is Early
    assert XFetch(2.0) == XFetch(2.0)
    assert hash(XFetch()) == hash(XFetch())
    assert LoadOptions(early=XFetch()).early == XFetch()


def test_a_cache_that_isnt_there(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": DUMMY}}
    with pytest.raises(InvalidCacheBackendError, match="There is no cache 'nowhere'"):
        get_or_load("k", lambda: 1, cache="nowhere")
    with pytest.raises(TypeError, match="cache is an alias of CACHES"):
        get_or_load("k", lambda: 1, cache=5)
    assert get_or_load("k", lambda: 1, cache=caches["default"]) == 1


def test_a_cache_elsewhere_needs_locks(settings: Any, tmp_path: Any) -> None:
    """Its leases have to be somewhere."""
    settings.REDIS_LOCKS = {}
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)}
    }
    for call in (lambda: get_or_load("k", lambda: 1), lambda: invalidate("k")):
        with pytest.raises(InvalidLockBackend, match="There is no alias 'default' in REDIS_LOCKS"):
            call()


def test_a_cache_on_redis_needs_none(settings: Any, redis_url: str) -> None:
    settings.REDIS_LOCKS = {}
    settings.CACHES = {"default": redis_caches(redis_url)[HERE]}
    assert get_or_load("k", lambda: 1, ttl=60) == 1
    assert caches["default"].get("k") == 1


def test_nothing_is_left_beside_a_value(on_redis: str) -> None:
    """[S35] What tells its age is its own end: nothing can outlive it, or end before."""
    get_or_load("k", lambda: 1, cache=HERE, ttl=60, stale=60, early=XFetch())
    with redis.Redis.from_url(on_redis) as direct:
        assert direct.keys() == [b":1:k"]


def test_who_waits_has_asked_nothing(proxied: Proxy, stage: Stage) -> None:
    """[S25] A waiter sleeps in the process, not in a reply: no timeout of a socket ends it, and it holds no connection."""
    loader = Loader("value", gate=True)
    first = stage.start("k", loader, ttl=60)
    loader.wait()
    second = stage.start("k", Loader("other"), cache=THERE, ttl=60)
    eventually(lambda: len(road_at(THERE).engine._queues) > 0 and proxied.fates("load/claim")[1:])
    eventually(lambda: proxied.unanswered == 0)
    assert not second.done()
    loader.gate.set()
    assert second.result(PATIENCE).value == first.result(PATIENCE).value == "value"


def test_one_leads_however_many_come_at_once() -> None:
    """[S52] [S20] To look and to begin is one step, and keys have nothing to do with each other."""
    flights = Flights()
    crowd = 8
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(200):
            barrier = threading.Barrier(crowd)
            leads: list[bool] = []

            def come(barrier: threading.Barrier = barrier, turn: int = turn, leads: list[bool] = leads) -> None:
                barrier.wait(PATIENCE)
                leads.append(flights.join(f"k{turn}")[1])

            threads = [threading.Thread(target=come) for _ in range(crowd)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            assert leads.count(True) == 1
    finally:
        sys.setswitchinterval(before)

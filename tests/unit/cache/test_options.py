"""The options of loads: what is read, once, and what is refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from django_redis_locks.cache import XFetch
from django_redis_locks.cache import options as module
from django_redis_locks.cache.options import LoadOptions, options


def test_same_options_in_another_order_are_equal_and_frozen() -> None:
    """[S34] One call can't change them for another one."""
    one = options({"ttl": 60, "stale": 5})
    assert options({"stale": 5, "ttl": 60}) == one
    assert LoadOptions(early=XFetch()).early == XFetch()
    with pytest.raises(FrozenInstanceError):
        one.ttl = 1  # type: ignore[misc]
    options({"stale": 1})
    with pytest.raises(ValueError, match="stale must be seconds"):
        options({"stale": True})  # equal to 1, and not the same
    assert options({"default": []}).default == []


def test_durations_are_read_as_seconds() -> None:
    half = dt.timedelta(seconds=0.5)
    names = ("ttl", "stale", "wait", "error_ttl", "max_hold")
    made = options({**dict.fromkeys(names, half), "expire": half})
    assert [getattr(made, name) for name in names] == [0.5] * len(names)
    assert made.expire == 500
    assert options({"ttl": None}).ttl is None
    assert options({"wait": -1}).wait == float("inf")
    assert options({"max_hold": None}).max_hold == float("inf")


NAN = float("nan")
WRONG: dict[str, list[dict[str, Any]]] = {
    "ttl is a number of seconds": [{"ttl": "60"}, {"ttl": True}, {"ttl": NAN}],
    "stale must be 0 or more": [{"stale": -1}],
    "stale must be seconds": [{"stale": "5"}],
    "early is None, a fraction": [{"early": 0}, {"early": 1}, {"early": True}, {"early": XFetch}],
    "early needs a ttl": [{"early": 0.5, "ttl": None}],
    "refresh is 'inline' or 'thread' or 'celery', or a callable": [{"refresh": "later"}],
    "wait must be 0 or more": [{"wait": -2}],
    "on_conflict is 'load' or 'default' or 'raise'": [{"on_conflict": "skip"}],
    "expire must be between": [{"expire": 0}, {"expire": -1}],
    "renew is True or False": [{"renew": 1}],
    "jitter is a fraction": [{"jitter": 1}, {"jitter": -0.1}],
    "store_in_atomic is 'on_commit'": [{"store_in_atomic": "maybe"}],
    "share is True or False": [{"share": None}],
}


def test_value_out_of_its_range_is_refused_each_time() -> None:
    for given, message in [(one, message) for message, cases in WRONG.items() for one in cases]:
        for _ in range(2):  # an error isn't remembered as an answer
            with pytest.raises(ValueError, match=message):
                options(given)


def test_name_of_another_library_is_refused_with_a_suggestion() -> None:
    meanings = {
        "timeout": "ttl",
        "lease": "expire",
        "on_timeout": "on_conflict",
        "stael": "stale",
        "lock_timeout": "wait",
    }
    for name, meant in meanings.items():
        with pytest.raises(TypeError, match=f"no option '{name}'; did you mean {meant}="):
            options({name: 5})
    with pytest.raises(TypeError, match="there are ttl, stale"):
        options({"xyzzy": 5})


def test_every_option_has_a_check() -> None:
    assert set(module.NAMES) - set(module._CHECKS) == {"default"}

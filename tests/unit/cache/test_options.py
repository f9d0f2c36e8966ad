"""The options of loads and their validation; early refresh (XFetch); background threads."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from django_redis_locks.cache import XFetch
from django_redis_locks.cache import options as options_module
from django_redis_locks.cache.loading import background, early
from django_redis_locks.cache.options import CheckedOptions, options
from tests.contract.matrix import PATIENCE


def test_same_options_in_another_order_are_equal_and_frozen() -> None:
    """[S34] Cached options are shared between calls, so they can't be changed."""
    one = options({"ttl": 60, "stale": 5})
    assert options({"stale": 5, "ttl": 60}) == one
    assert CheckedOptions(early=XFetch()).early == XFetch()
    with pytest.raises(FrozenInstanceError):
        one.ttl = 1  # type: ignore[misc]
    options({"stale": 1})
    with pytest.raises(ValueError, match="stale must be seconds"):
        options({"stale": True})  # equals 1, which is valid
    assert options({"default": []}).default == []


def test_durations_are_read_as_seconds() -> None:
    half = dt.timedelta(seconds=0.5)
    names = ("ttl", "stale", "wait", "error_ttl", "max_hold")
    made = options({**dict.fromkeys(names, half), "start_within": half})
    assert [getattr(made, name) for name in names] == [0.5] * len(names)
    assert made.start_within == 0.5
    assert options({"ttl": None}).ttl is None
    assert options({}).wait == options({"wait": -1}).wait == options({"wait": None}).wait == float("inf")
    assert options({"max_hold": None}).max_hold == float("inf")


def test_pause_after_an_error_depends_on_the_stale_value_unless_given() -> None:
    for given, pauses in (
        ({}, (5, 0)),
        ({"error_ttl": None}, (5, 0)),
        ({"error_ttl": 0}, (0, 0)),
        ({"error_ttl": 9}, (9, 9)),
    ):
        made = options(given)
        assert (made.pause_after_error(stale_served=True), made.pause_after_error(stale_served=False)) == pauses


NAN = float("nan")
WRONG: dict[str, list[dict[str, Any]]] = {
    "ttl is a number of seconds": [{"ttl": "60"}, {"ttl": True}, {"ttl": NAN}],
    "stale must be 0 or more": [{"stale": -1}],
    "stale must be seconds": [{"stale": "5"}],
    "early is None, a fraction": [{"early": 0}, {"early": 1}, {"early": True}, {"early": XFetch}],
    "early needs a ttl": [{"early": 0.5, "ttl": None}],
    "a ttl that is a function has no share": [{"early": 0.5, "ttl": len}],
    "store_if is a function": [{"store_if": True}],
    "refresh is one of 'inline', 'thread', 'celery', or a callable": [{"refresh": "later"}],
    "wait must be 0 or more": [{"wait": -2}],
    "on_timeout is one of 'load', 'default', 'raise'": [{"on_timeout": "skip"}],
    "start_within must be between": [{"start_within": 0}, {"start_within": -1}],
    "jitter is a fraction": [{"jitter": 1}, {"jitter": -0.1}],
    "store_in_atomic is one of 'on_commit'": [{"store_in_atomic": "maybe"}],
    "stale_if_error is True or False": [{"stale_if_error": None}],
}


def test_value_out_of_its_range_is_refused_each_time() -> None:
    for given, message in [(one, message) for message, cases in WRONG.items() for one in cases]:
        for _ in range(2):  # errors aren't cached
            with pytest.raises(ValueError, match=message):
                options(given)


def test_name_of_another_library_is_refused_with_a_suggestion() -> None:
    meanings = {
        "timeout": "ttl",
        "expire": "ttl",
        "lease": "max_hold",
        "on_conflict": "on_timeout",
        "condition": "store_if",
        "tags": "groups",
        "hard_timeout": "load_timeout",
        "stael": "stale",
        "lock_timeout": "wait",
    }
    for name, meant in meanings.items():
        with pytest.raises(TypeError, match=f"no option '{name}'; did you mean '{meant}'"):
            options({name: 5})
    with pytest.raises(TypeError, match="there are ttl, stale"):
        options({"xyzzy": 5})


def test_every_option_has_a_check() -> None:
    assert set(options_module.NAMES) - set(options_module._CHECKS) == {"default"}


@pytest.fixture(autouse=True)
def no_learned_durations() -> Iterator[None]:
    early._seconds.clear()
    yield
    early._seconds.clear()


def test_xfetch_probability_rises_towards_the_end_of_the_ttl() -> None:
    """[S51] The published formula, with the duration of earlier loads of the name; never before the last quarter."""
    early.learn("slow", 2.0)

    def share(name: str, left: float, beta: float = 1.0) -> float:
        return sum(early.due(XFetch(beta), name, left, 100.0) for _ in range(4000)) / 4000

    assert share("unknown", 0.001) == 0
    assert share("slow", 50.0) == 0
    assert share("slow", 26.0, beta=1000.0) == 0
    assert 0.30 < share("slow", 2.0) < 0.44  # exp(-1)
    assert 0.55 < share("slow", 1.0) < 0.66  # exp(-1/2)
    assert share("slow", 2.0, beta=4.0) > share("slow", 2.0)


def test_xfetch_learns_an_average_for_each_name() -> None:
    """[S51] An exponential moving average of the durations."""
    early.learn("a", 1.0)
    early.learn("a", 2.0)
    assert early._seconds["a"] == pytest.approx(1.2)
    assert "b" not in early._seconds


def test_xfetch_refuses_a_beta_that_is_no_positive_number() -> None:
    betas: list[Any] = [0, -1, True, "1", float("inf"), float("nan")]
    for beta in betas:
        with pytest.raises(ValueError, match="beta is a positive number"):
            XFetch(beta)


def test_job_runs_even_if_its_context_cannot_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """[S38] Other callers wait for the load, so it must begin in any case."""

    def fail(*args: Any) -> Any:
        raise RuntimeError("not ready")

    for owner, name in ((background.translation, "override"), (background, "close_old_connections")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            done = threading.Event()
            background.in_thread(done.set)
            assert done.wait(PATIENCE), name

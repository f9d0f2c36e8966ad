"""Habits from other libraries are answered with the word that is used here."""

from __future__ import annotations

import pytest

from django_redis_locks import LockAlreadyHeld, LockKeyError, locks, redis_lock
from django_redis_locks.conf import problems


@pytest.mark.parametrize(
    ("argument", "ours"),
    [("timeout", "expire"), ("ttl", "expire"), ("blocking_timeout", "wait"), ("expires", "expire"), ("waits", "wait")],
)
def test_an_unknown_argument_of_a_lock(argument: str, ours: str) -> None:
    """redis-py's `timeout` is the lease, ours is a wait: a silent mix-up would be worse than any error."""
    for make in (locks.lock, locks.rlock, locks["default"].lock):
        with pytest.raises(TypeError, match=f"no argument '{argument}'; did you mean {ours}="):
            make("a", **{argument: 5})  # type: ignore[operator]


@pytest.mark.parametrize(("key", "ours"), [("TIMEOUT", "EXPIRE"), ("BLOCKING_TIMEOUT", "WAIT"), ("EXPIRES", "EXPIRE")])
def test_an_unknown_setting(key: str, ours: str) -> None:
    """The same words in the settings."""
    (problem,) = [found for found in problems("default", {"LOCATION": "redis://h/0", key: 5}) if found.serious]
    assert problem.hint == f"Did you mean {ours!r}?"


def test_an_unknown_option() -> None:
    """A typing error in OPTIONS is found without a server."""
    entry = {"LOCATION": "redis://h/0", "OPTIONS": {"socket_timout": 1}}
    (problem,) = [found for found in problems("default", entry) if found.serious]
    assert problem.id == "E032"
    assert "did you mean 'socket_timeout'?" in problem.message


def test_nobody_is_logged_in() -> None:
    """The way out that is named first isn't one lock for all visitors."""

    class Request:
        class user:  # noqa: N801
            pk = None

    @redis_lock(key="basket:{request.user.pk}")
    def work(request: object) -> None: ...

    with pytest.raises(LockKeyError, match=r"@login_required above @redis_lock"):
        work(Request())


def test_a_call_inside_itself() -> None:
    """What may be entered again is named in the words of the decorator too."""

    @redis_lock("work")
    def work(again: bool = True) -> None:
        if again:
            work(again=False)

    with pytest.raises(LockAlreadyHeld, match=r"reentrant=True"):
        work()

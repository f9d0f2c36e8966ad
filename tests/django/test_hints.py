"""Words of other libraries are refused with the word that is used here."""

from __future__ import annotations

import pytest

from django_redis_locks import LockAlreadyHeld, LockKeyError, locks, redis_lock


def test_unknown_argument_of_a_lock_raises_TypeError_with_the_right_word() -> None:
    """redis-py's `timeout` is the lease, ours is a wait: a silent mix-up would be worse than any error."""
    for argument, ours in (
        ("timeout", "expire"),
        ("ttl", "expire"),
        ("blocking_timeout", "wait"),
        ("expires", "expire"),
        ("waits", "wait"),
    ):
        for make in (locks.lock, locks.rlock, locks["default"].lock):
            with pytest.raises(TypeError, match=f"no argument '{argument}'; did you mean {ours}="):
                make("a", **{argument: 5})


def test_key_of_an_anonymous_user_raises_and_names_login_required_first() -> None:
    """Not one lock for all visitors."""

    class Request:
        class user:  # noqa: N801
            pk = None

    @redis_lock(key="basket:{request.user.pk}")
    def work(request: object) -> None: ...

    with pytest.raises(LockKeyError, match=r"@login_required above @redis_lock"):
        work(Request())


def test_call_inside_itself_raises_and_names_reentrant() -> None:
    @redis_lock("work")
    def work(again: bool = True) -> None:
        if again:
            work(again=False)

    with pytest.raises(LockAlreadyHeld, match=r"reentrant=True"):
        work()

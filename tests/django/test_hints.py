"""Words of other libraries are refused with the word that is used here."""

from __future__ import annotations

from types import SimpleNamespace

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


def test_call_inside_itself_or_of_an_anonymous_user_raises_and_names_the_way_out() -> None:
    """Not one lock for all visitors."""
    work = redis_lock("work")(lambda: work())  # noqa: PLW0108 - the call itself
    with pytest.raises(LockAlreadyHeld, match=r"reentrant=True"):
        work()
    basket = redis_lock(key="basket:{request.user.pk}")(lambda request: None)
    with pytest.raises(LockKeyError, match=r"@login_required above @redis_lock"):
        basket(SimpleNamespace(user=SimpleNamespace(pk=None)))

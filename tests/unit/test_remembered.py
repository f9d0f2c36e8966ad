"""Locks are made again and again: what their making remembers, and what it must not confuse or keep."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils.functional import lazystr

from django_redis_locks import Lock, LockKeyError, client, locks

Make = Callable[..., Lock]
both = pytest.mark.parametrize("make", [locks.lock, locks.rlock], ids=["lock", "rlock"])


@both
def test_the_same_is_made_again(make: Make) -> None:
    """Equal places and terms, whatever was made in between."""
    one = make("remembered:1", expire=5, name="orders")
    make("remembered:2", expire=6)
    two = make("remembered:1", expire=5, name="orders")
    assert one == two
    assert one.keys is two.keys
    assert one.terms is two.terms


@both
@pytest.mark.parametrize(
    ("fine", "senseless"),
    [
        ({"expire": 1}, {"expire": True}),
        ({"wait": 1}, {"wait": True}),
        ({"wait": 0}, {"wait": False}),
        ({"renew": True}, {"renew": 1}),
        ({"renew": False}, {"renew": 0.0}),
    ],
    ids=str,
)
def test_what_is_equal_is_not_the_same(make: Make, fine: dict[str, Any], senseless: dict[str, Any]) -> None:
    """A number that equals a boolean has been remembered, and the boolean is refused as ever; and the other way round."""
    for _ in range(2):
        make("remembered", **fine)
        with pytest.raises(ValueError, match=next(iter(senseless))):
            make("remembered", **senseless)


@both
def test_a_key_that_only_equals_a_remembered_one_is_refused(make: Make) -> None:
    """A translated string, such as a form's label, isn't a str."""
    make("remembered")
    with pytest.raises(LockKeyError):
        make(lazystr("remembered"))


@both
@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"key": ["order", 5]}, LockKeyError, "list"),
        ({"key": {}}, LockKeyError, "dict"),
        ({"name": ["order"]}, ValueError, "name"),
        ({"expire": [1]}, ValueError, "expire"),
        ({"wait": {}}, ValueError, "wait"),
        ({"renew": []}, ValueError, "renew"),
        ({"on_backend_error": ["open"]}, ValueError, "on_backend_error"),
        ({"on_lost": []}, ValueError, "on_lost"),
    ],
    ids=str,
)
def test_what_can_not_be_remembered_is_refused_for_what_it_is(
    make: Make, wrong: dict[str, Any], error: type[Exception], match: str
) -> None:
    """Not for being unhashable."""
    with pytest.raises(error, match=match):
        make(**{"key": "remembered", **wrong})


@both
def test_a_refusal_is_not_remembered_as_a_lock(make: Make) -> None:
    """Nor does it spoil what was."""
    for _ in range(2):
        with pytest.raises(LockKeyError):
            make("")
        with pytest.raises(ValueError, match="expire"):
            make("remembered", expire=-1)
        assert make("remembered", expire=timedelta(seconds=1)).terms.lease == 1000


@both
def test_who_is_told_of_losses_is_not_kept_alive(make: Make) -> None:
    """[H6] It may be a method of something large, such as a request's view."""

    class View:
        def lost(self, grant: Any) -> None:
            pass

    view = View()
    lock = make("remembered", on_lost=view.lost)
    assert lock.terms.on_lost == view.lost
    assert make("remembered").terms.on_lost is None
    seen = weakref.ref(view)
    del view, lock
    gc.collect()
    assert seen() is None


def test_a_million_keys_are_not_kept() -> None:
    """A lock for each of them, and for each length of time: so many are remembered, and no more."""
    maker = locks["default"]
    for number in range(client.MEMORY + 100):
        maker.lock(f"remembered:{number}", expire=1 + number)
    assert maker._addresses.cache_info().currsize <= client.MEMORY
    assert maker._special.cache_info().currsize <= client.MEMORY

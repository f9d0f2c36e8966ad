"""`Locks.lock()` caches keys and options; the caches must not confuse equal values or keep objects alive."""

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

EQUAL: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"expire": 1}, {"expire": True}),
    ({"wait": 1}, {"wait": True}),
    ({"wait": 0}, {"wait": False}),
    ({"renew": True}, {"renew": 1}),
    ({"renew": False}, {"renew": 0.0}),
]
UNHASHABLE: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"key": ["order", 5]}, LockKeyError, "list"),
    ({"key": {}}, LockKeyError, "dict"),
    ({"name": ["order"]}, ValueError, "name"),
    ({"expire": [1]}, ValueError, "expire"),
    ({"wait": {}}, ValueError, "wait"),
    ({"renew": []}, ValueError, "renew"),
    ({"on_backend_error": ["open"]}, ValueError, "on_backend_error"),
    ({"on_lost": []}, ValueError, "on_lost"),
]


@both
def test_lock_made_twice_shares_keys_and_options(make: Make) -> None:
    one = make("remembered:1", expire=5, name="orders")
    make("remembered:2", expire=6)
    two = make("remembered:1", expire=5, name="orders")
    assert one == two
    assert one.keys is two.keys
    assert one.options is two.options


@both
def test_invalid_value_that_equals_a_cached_one_raises(make: Make) -> None:
    """A boolean that equals a number, and the reverse; a lazy string that equals a key; a value without a hash. Also at
    the second call."""
    for valid, invalid in EQUAL:
        for _ in range(2):
            make("remembered", **valid)
            with pytest.raises(ValueError, match=next(iter(invalid))):
                make("remembered", **invalid)
    for wrong, error, match in UNHASHABLE:
        with pytest.raises(error, match=match):
            make(**{"key": "remembered", **wrong})
    for key in (lazystr("remembered"), "", ""):
        with pytest.raises(LockKeyError):
            make(key)
    assert make("remembered", expire=timedelta(seconds=1)).options.lease == 1000


@both
def test_on_lost_callback_is_not_kept_alive(make: Make) -> None:
    """[H6] It may be a method of a large object, such as a view."""

    class View:
        def lost(self, grant: Any) -> None:
            pass

    view = View()
    lock = make("remembered", on_lost=view.lost)
    assert lock.options.on_lost == view.lost
    assert make("remembered").options.on_lost is None
    seen = weakref.ref(view)
    del view, lock
    gc.collect()
    assert seen() is None


def test_caches_are_bounded() -> None:
    maker = locks["default"]
    for number in range(client.CACHED_KEYS + 100):
        maker.lock(f"remembered:{number}", expire=1 + number)
    assert maker._cached_parts.cache_info().currsize <= client.CACHED_KEYS
    assert maker._cached_options.cache_info().currsize <= client.CACHED_KEYS

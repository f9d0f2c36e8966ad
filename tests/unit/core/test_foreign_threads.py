"""Owners that ``threading`` didn't start: threads of C code. They die, and another one gets their number."""

from __future__ import annotations

import _thread
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks import LockAlreadyHeld, locks
from django_redis_locks.core.owners import current_owner, name_of

PATIENCE = 30.0


class Life:
    """It ends with the thread that has it."""


@pytest.fixture(autouse=True)
def maintenance() -> Iterator[None]:
    """It runs already, so that it doesn't get the number of a thread that died."""
    with locks.lock("unit:foreign:first"):
        yield


def abroad(function: Callable[[], Any]) -> Any:
    """What a foreign thread gets, once it is dead."""
    local = threading.local()
    told: list[Any] = []
    lives: list[weakref.ref[Life]] = []

    def run() -> None:
        local.life = Life()
        lives.append(weakref.ref(local.life))
        try:
            told.append(function())
        except LockAlreadyHeld as error:
            told.append(error)

    _thread.start_new_thread(run, ())
    end = time.monotonic() + PATIENCE
    while not lives or lives[0]() is not None:
        assert time.monotonic() < end
        time.sleep(0.001)
    return told[0]


def test_foreign_threads_are_different_owners() -> None:
    """[H5] The same one as long as it lives, and never another one, although the system uses its number again."""
    first, again, name = abroad(lambda: (current_owner(), current_owner(), name_of(current_owner())))
    assert first is again
    assert name.startswith("Dummy")
    for _ in range(5):
        assert abroad(current_owner) is not first


def test_next_foreign_thread_of_the_same_ident_is_another_owner() -> None:
    """[H5] It waits as anybody else; nobody tells it that it would wait for itself."""
    lock = locks.lock("unit:foreign:next", expire=30)
    abroad(lambda: bool(lock.acquire()))
    for _ in range(5):
        assert abroad(lambda: lock.acquire(timeout=0.01)) is None


def test_lock_of_a_foreign_thread_ends_with_it(settings: Any) -> None:
    """[H6] Nobody renews the lock of a dead thread, whoever started that."""
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "EXPIRE": 0.1},
    }
    with locks.lock("unit:foreign:other", expire=30, renew=True):
        abroad(lambda: bool(locks.lock("unit:foreign:end").acquire()))
        lock = locks.lock("unit:foreign:end", expire=30)
        assert lock.acquire(timeout=PATIENCE)
        lock.release()

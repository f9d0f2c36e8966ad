"""Owners that are threads of C code, not started by ``threading``: when they end, another thread may get their
ident."""

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


class ThreadValue:
    """A thread-local value: it is deleted when its thread ends."""


@pytest.fixture(autouse=True)
def maintenance() -> Iterator[None]:
    """Start the maintenance thread first, so that it doesn't get the ident of a thread that ended."""
    with locks.lock("unit:foreign:first"):
        yield


def in_foreign_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a foreign thread; returns its result after the end of the thread."""
    local = threading.local()
    results: list[Any] = []
    thread_values: list[weakref.ref[ThreadValue]] = []

    def run() -> None:
        local.life = ThreadValue()
        thread_values.append(weakref.ref(local.life))
        try:
            results.append(function())
        except LockAlreadyHeld as error:
            results.append(error)

    _thread.start_new_thread(run, ())
    end = time.monotonic() + PATIENCE
    while not thread_values or thread_values[0]() is not None:
        assert time.monotonic() < end
        time.sleep(0.001)
    return results[0]


def test_foreign_threads_are_different_owners() -> None:
    """[H5] One thread is one owner as long as it lives; a later thread is another one, even with the same ident."""
    first, again, name = in_foreign_thread(lambda: (current_owner(), current_owner(), name_of(current_owner())))
    assert first is again
    assert name.startswith("Dummy")
    for _ in range(5):
        assert in_foreign_thread(current_owner) is not first


def test_next_foreign_thread_of_the_same_ident_is_another_owner() -> None:
    """[H5] It waits as any other thread, without an error that it would wait for itself."""
    lock = locks.lock("unit:foreign:next", expire=30)
    in_foreign_thread(lambda: bool(lock.acquire()))
    for _ in range(5):
        assert in_foreign_thread(lambda: lock.acquire(timeout=0.01)) is None


def test_lock_of_a_foreign_thread_ends_with_it(settings: Any) -> None:
    """[H6] A lock isn't renewed after the end of its thread, also of a foreign one."""
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "EXPIRE": 0.1},
    }
    with locks.lock("unit:foreign:other", expire=30, renew=True):
        in_foreign_thread(lambda: bool(locks.lock("unit:foreign:end").acquire()))
        lock = locks.lock("unit:foreign:end", expire=30)
        assert lock.acquire(timeout=PATIENCE)
        lock.release()

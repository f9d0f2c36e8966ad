"""CPython's lock tests, applied to these locks: each has the name that it has in ``Lib/test/lock_tests.py``.

The docstrings state differences from ``threading.Lock`` and ``threading.RLock``. In general: a lock is identified by
its key, not its object; ``acquire`` returns a ``Grant``, which is true, or None; an owner is a thread or a task, and
its context; ``lock`` has an owner, too, like ``rlock``.

Some are in other files: ``test_acquire_release``, ``test_acquire_contended``, ``test_try_acquire``,
``test_try_acquire_contended`` and ``test_reacquire`` of LockTests in ``test_lock.py``, ``test_reacquire`` of RLockTests
and ``test_recursion_count`` in ``test_rlock.py``. Two have no equivalent. ``test_release_save_unacquired`` tests
``_release_save`` and ``_acquire_restore``, which ``threading.Condition``
uses: there is no Condition over a store. ``test_at_fork_reinit`` tests ``_at_fork_reinit``, which frees a lock in a
    forked
child: here the parent keeps it (``test_ownership.py``).
"""

from __future__ import annotations

import _thread
import asyncio
import gc
import re
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta

import pytest

from django_redis_locks import Lock, LockNotOwned, current_grant
from tests.contract.matrix import BACKENDS, PATIENCE, Caller, Face, eventually, inside, threads_only

pytestmark = pytest.mark.parametrize("backend", BACKENDS[:2], indirect=True)
"""Without the cluster, which differs in its keys only."""

Make = Callable[..., Lock]


@pytest.fixture(params=["lock", "rlock"])
def make(request: pytest.FixtureRequest, face: Face) -> Make:
    """Makes an object for the test's key, as ``threading.Lock`` and ``threading.RLock`` do in CPython's tests."""
    made: Make = getattr(face, request.param)
    return made


def nothing() -> None:
    """A last call without effect, so that the caller keeps no reference to the previous one."""


# Both kinds: BaseLockTests


def test_constructor(face: Face, make: Make, alice: Caller, bob: Caller) -> None:
    """It sends no request, and a second object is the same lock."""
    with face.commands() as commands:
        lock = make()
        del lock
    assert commands == []
    assert not alice(make().locked)
    alice(make().acquire)
    with face.commands() as commands:
        make()
    assert commands == []
    assert bob(make().acquire, False) is None


def test_locked_repr(face: Face, make: Make, alice: Caller) -> None:
    """The lock's repr has the name, but not whether it is held, which would need a request. The grant's repr has the
    state that the process knows."""
    lock = make()
    grant = alice(lock.acquire)
    with face.commands() as commands:
        assert repr(lock) == "<Lock 'thing' of 'default'>"
        assert re.fullmatch(r"<Grant 'thing' fence=\d+ held>", repr(grant))
    assert commands == []
    alice(grant.release)
    assert re.fullmatch(r"<Grant 'thing' fence=\d+ released>", repr(grant))


def test_with(make: Make, alice: Caller, bob: Caller) -> None:
    """Inside the block its grant is the current one."""
    lock = make()
    with inside(alice, lock) as grant:
        assert bob(lock.acquire, False) is None
        assert alice(current_grant) is grant
    assert alice(current_grant) is None
    assert bob(lock.acquire, False)
    bob(lock.release)
    with pytest.raises(TypeError, match="of the body"), inside(alice, lock):
        raise TypeError("of the body")
    assert bob(lock.acquire, False)


def test_thread_leak(face: Face, make: Make) -> None:
    """Neither the lock nor a grant keeps a reference to a thread or task that used it."""
    lock = make()
    me = asyncio.current_task if face.is_async else threading.current_thread
    grants, owners = [], []
    for _ in range(5):
        caller = face.caller()
        grants.append(caller(lock.acquire))
        caller(lock.release)
        owners.append(caller(lambda: weakref.ref(me())))
        face.dismiss(caller)
        del caller
    # The renewal may have a reference to its last hold at this moment
    eventually(lambda: [gc.collect(), *(owner() for owner in owners)][1:] == [None] * 5)
    assert all(grant.released for grant in grants)


@threads_only
def test_thread_leak_of_foreign_threads(face: Face, make: Make, alice: Caller) -> None:
    """Threads that ``threading`` didn't start can be owners, too."""
    lock = make(wait=PATIENCE)
    used: list[int | None] = []
    ended = threading.Semaphore(0)

    def use() -> None:
        with lock as grant:
            used.append(grant.fence)
        ended.release()

    alice(lock.acquire)
    for _ in range(15):
        _thread.start_new_thread(use, ())
    eventually(lambda: face.queued(lock) == 15)
    assert not used
    alice(lock.release)
    assert all(ended.acquire(timeout=PATIENCE) for _ in range(15))
    assert len(set(used)) == 15
    eventually(lambda: not alice(lock.locked))  # a late copy of a request may have been granted it for a moment


def test_timeout(face: Face, make: Make, alice: Caller, bob: Caller) -> None:
    """[F1] [L30] A wait that ends returns None. There is no maximum, so no OverflowError; -1 waits for ever; other
    negative times raise ValueError, as does a timeout of a call that doesn't wait."""
    lock = make()
    with pytest.raises(ValueError, match="takes no timeout"):
        alice(lock.acquire, False, 1)
    with pytest.raises(ValueError, match="timeout must be 0 or more"):
        alice(lock.acquire, timeout=-100)
    for timeout in (threading.TIMEOUT_MAX, threading.TIMEOUT_MAX + 1, 1e100, timedelta.max, -1):
        assert alice(lock.acquire, timeout=timeout)
        alice(lock.release)
    begin = time.monotonic()
    assert alice(lock.acquire, timeout=20)
    assert time.monotonic() - begin < 8
    begin = time.monotonic()
    assert bob(lock.acquire, timeout=0.15) is None
    assert 0.15 <= time.monotonic() - begin < 8
    assert alice(lock.owned)  # test_state_after_timeout
    alice(lock.release)
    assert bob(lock.acquire, blocking=False)


def test_weakref_deleted(make: Make, alice: Caller, bob: Caller) -> None:
    """As soon as it isn't held, since a grant refers to its lock. It also covers ``test_acquire_destroy``: another
    object of the key frees the lock."""
    lock = make()
    ref = weakref.ref(lock)
    alice(lock.acquire)
    del lock
    alice(nothing)
    gc.collect()
    assert bob(make().acquire, False) is None
    alice(make().release)
    alice(nothing)
    eventually(lambda: (gc.collect(), ref())[1] is None)  # a thread of the engine may have a reference at this moment
    assert bob(make().acquire, False)


# LockTests and RLockTests


def test_different_thread(make: Make, alice: Caller, bob: Caller) -> None:
    """[F4] [H5] [L1] Another thread releases it by the grant, not by the lock, which may have another holder by
    then."""
    lock = make()
    grants = [alice(lock.acquire) for _ in range(2 if lock.reentrant else 1)]
    for grant in grants:
        with pytest.raises(LockNotOwned):
            bob(lock.release)
        assert bob(lock.acquire, False) is None
        bob(grant.release)
    assert not alice(lock.owned)
    assert bob(lock.acquire, timeout=0)
    with pytest.raises(LockNotOwned):
        alice(lock.release)


def test_release_unacquired(make: Make, face: Face, alice: Caller) -> None:
    """LockNotOwned, which is a RuntimeError. No request is sent."""
    lock = make()
    entries = 2 if lock.reentrant else 1
    for _ in range(2):
        with face.commands() as commands, pytest.raises(RuntimeError) as caught:
            alice(lock.release)
        assert commands == []
        assert type(caught.value) is LockNotOwned
        for _ in range(entries):
            alice(lock.acquire)
        for _ in range(entries):
            alice(lock.release)


def test__is_owned(make: Make, alice: Caller, bob: Caller) -> None:
    """``owned()``, from the state of the process. ``Lock`` has it, too."""
    lock = make()
    assert not alice(lock.owned)
    alice(lock.acquire)
    if lock.reentrant:
        alice(lock.acquire)
        alice(lock.release)
    assert alice(lock.owned)
    assert alice(make().owned)
    assert not bob(lock.owned)
    alice(lock.release)
    assert not alice(lock.owned)

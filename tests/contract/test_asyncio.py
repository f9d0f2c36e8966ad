"""What is promised to tasks alone: cancellation leaves nothing behind, and a loop is never blocked."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError
from functools import partial  # a call as it stands, not its twin
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks import locks
from tests.contract.matrix import FACES, PATIENCE, Caller, Face, Thread, eventually, prolonged

tasks_only = pytest.mark.parametrize("face", FACES[1:], indirect=True)

CANCELLED = (CancelledError, asyncio.CancelledError)


@tasks_only
def test_synchronous_methods_are_refused_in_a_loop(face: Face, alice: Caller, bob: Caller) -> None:
    """[F17] At once, before anything is sent or waited for, and naming the a-twin."""
    lock = face.lock(expire=30)
    grant = alice(lock.acquire)
    thread = Thread()
    waiting = face.start_waiting(thread, lock, timeout=PATIENCE)
    begin = time.monotonic()
    for method in (lock.acquire, lock.holder, lock.force_release):
        with pytest.raises(SynchronousOnlyOperation, match="a-twin"):
            bob(partial(method))
    assert time.monotonic() - begin < 8
    alice(grant.ensure_held, confirm=True)
    alice(grant.release)
    assert waiting.result(PATIENCE)
    thread.close()


@tasks_only
def test_who_insists_may_block_his_loop(face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """[F17] DJANGO_ALLOW_ASYNC_UNSAFE is honoured, for notebooks and Playwright."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    lock = face.lock()
    grant = alice(partial(lock.acquire, timeout=1))
    assert alice(lock.locked)
    alice(partial(grant.release))
    assert not alice(lock.locked)


@tasks_only
@pytest.mark.usefixtures("no_polling")
def test_a_cancelled_waiter_is_no_obstacle(face: Face, alice: Caller, bob: Caller) -> None:
    """[L16] [L29] A task that is cancelled while it waits makes room for the next."""
    lock = face.lock()
    grant = alice(lock.acquire)
    task: list[asyncio.Task[Any]] = []

    async def wait() -> None:
        task.append(asyncio.current_task())
        await lock.aacquire(timeout=20)

    cancelled = bob.start(wait)
    eventually(lambda: face.queued(lock))
    patient = face.start_waiting(face.caller(), lock, timeout=2 * PATIENCE)
    task[0].get_loop().call_soon_threadsafe(task[0].cancel)
    with pytest.raises(CANCELLED):
        cancelled.result(PATIENCE)
    assert face.queued(lock) == 1
    alice(grant.release)
    assert patient.result(PATIENCE)


@tasks_only
def test_a_cancelled_attempt_leaves_no_lock(
    face: Face, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L16] [X2] Cancelled after the store granted it and before anybody heard: the janitor frees it."""
    lock = face.lock(expire=300)
    backend = locks["default"].engine.backend
    acall, granted = backend.acall, threading.Event()

    async def never_heard(command: Any) -> Any:
        await acall(command)
        granted.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(backend, "acall", never_heard)
    task: list[asyncio.Task[Any]] = []

    async def acquire() -> None:
        task.append(asyncio.current_task())
        await lock.aacquire()

    cancelled = alice.start(acquire)
    assert granted.wait(PATIENCE)
    monkeypatch.undo()
    assert bob(lock.locked)
    task[0].get_loop().call_soon_threadsafe(task[0].cancel)
    with pytest.raises(CANCELLED):
        cancelled.result(PATIENCE)
    eventually(lambda: not bob(lock.locked))


@tasks_only
@pytest.mark.usefixtures("often")
def test_a_lock_acquired_by_a_child_task_is_its_parents_to_keep(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5] [H6] `wait_for` may acquire in a task of its own, which is over at once: the grant is good, and renewed."""
    face.configure(EXPIRE=9)
    lock = face.lock()

    async def acquire() -> Any:
        return await asyncio.get_running_loop().create_task(lock.aacquire())

    grant = alice(acquire)
    prolonged(bob, lock)
    assert bob(lock.acquire, timeout=0) is None
    alice(grant.ensure_held, confirm=True)
    alice(grant.release)
    assert bob(lock.acquire, timeout=0)

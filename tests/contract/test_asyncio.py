"""Promises for tasks: cancellation leaves nothing behind, a loop is never blocked, both APIs return the same."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from concurrent.futures import CancelledError, Future
from functools import partial  # calls the synchronous method itself
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks import diagnosis, inspection, locks
from tests.contract.matrix import (
    PATIENCE,
    Caller,
    Face,
    Thread,
    each_mutex,
    eventually,
    tasks_only,
    wait_for_renewal,
    wait_until_prolonged,
)
from tests.probes.engine import hold_back_replies

pytestmark = tasks_only


def start_task(caller: Caller, method: Any, **how: Any) -> tuple[Future[Any], list[asyncio.Task[Any]]]:
    """Start a call, and return its future and, when it runs, its task."""
    task: list[asyncio.Task[Any]] = []

    async def run() -> None:
        task.append(asyncio.current_task())
        await method(**how)

    return caller.start(run), task


def cancel(task: asyncio.Task[Any], future: Future[Any]) -> None:
    task.get_loop().call_soon_threadsafe(task.cancel)
    with pytest.raises((CancelledError, asyncio.CancelledError)):
        future.result(PATIENCE)


@pytest.mark.usefixtures("frequent_renewal")
def test_a_synchronous_method_in_a_loop_raises_SynchronousOnlyOperation_unless_it_is_allowed(
    face: Face, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[F17] At once, before any request or wait; it names the async method. [L3] A refused call changes nothing."""
    record = locks.record(f"{face.key}/record")
    kept = alice(record.put, None, {}, expire=30, renew=True).record
    lock = face.lock(expire=30)
    grant = alice(lock.acquire)
    thread = Thread()
    waiting = face.start_waiting(thread, lock, timeout=PATIENCE)
    begin = time.monotonic()
    of_lock = (lock.acquire, lock.__enter__, lock.locked, lock.holder, lock.force_release)
    of_grant = (grant.release, grant.__enter__, partial(grant.extend, 60), partial(grant.ensure_held, confirm=True))
    for method in (*of_lock, *of_grant, partial(record.drop, kept), partial(record.put, kept, {})):
        with pytest.raises(SynchronousOnlyOperation, match="use the asynchronous method"):
            bob(partial(method))
    assert time.monotonic() - begin < 8
    wait_until_prolonged(lambda: alice(record.get).lease_left)
    alice(grant.ensure_held, confirm=True)
    alice(grant.release)
    assert waiting.result(PATIENCE)
    thread.close()
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # for notebooks and Playwright
    lock = face.lock(key=f"{face.key}/unsafe")
    grant = alice(partial(lock.acquire, timeout=1))
    assert alice(lock.locked)
    alice(partial(grant.release))
    assert not alice(lock.locked)


@each_mutex
@pytest.mark.usefixtures("no_polling")
def test_a_cancelled_waiter_leaves_the_queue(face: Face, alice: Caller, bob: Caller) -> None:
    """[L16] [L29] The next waiter gets the lock."""
    lock = face.lock()
    grant = alice(lock.acquire)
    cancelled, task = start_task(bob, lock.aacquire, timeout=20)
    eventually(lambda: face.queued(lock))
    patient = face.start_waiting(face.caller(), lock, timeout=2 * PATIENCE)
    cancel(task[0], cancelled)
    assert face.queued(lock) == 1
    alice(grant.release)
    assert patient.result(PATIENCE)


@each_mutex
def test_a_cancelled_attempt_leaves_no_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[L16] [X2] It is cancelled between the grant in the store and the reply: the maintenance thread frees the
    lock."""
    lock = face.lock(expire=300)
    granted = threading.Event()
    with hold_back_replies(granted.set):
        cancelled, task = start_task(alice, lock.aacquire)
        assert granted.wait(PATIENCE)
    assert bob(lock.locked)
    cancel(task[0], cancelled)
    eventually(lambda: not bob(lock.locked))


@pytest.mark.usefixtures("frequent_renewal")
def test_a_lock_acquired_by_a_child_task_is_renewed(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5c] [H6] `wait_for` may acquire in a child task, which ends at once: the parent task keeps the grant."""
    face.configure(EXPIRE=9)
    lock = face.lock()

    async def acquire() -> Any:
        return await asyncio.get_running_loop().create_task(lock.aacquire())

    grant = alice(acquire)
    wait_for_renewal(bob, lock)
    assert bob(lock.acquire, timeout=0) is None
    alice(grant.ensure_held, confirm=True)
    alice(grant.release)
    assert bob(lock.acquire, timeout=0)


def test_each_function_of_inspection_and_its_twin_return_the_same(face: Face, alice: Caller) -> None:
    """Both run the same program; test_inspection.py and test_fence.py test it in threads."""
    face.isolate()
    for n in range(5):
        alice(face.lock(f"order:{n}", expire=60 - 10 * n).acquire)

    def stable(value: object) -> object:
        """The value without its times."""
        if isinstance(value, inspection.Page):
            return value.total, value.next, value.partial, value.indexed, [stable(row) for row in value.rows]
        if isinstance(value, inspection.LockInfo):
            return value.key, value.name, value.kind, value.state, value.fence, value.waiting
        if isinstance(value, list):
            return [(counter.bucket, counter.last) for counter in value]
        return (value.server, value.version, value.role) if hasattr(value, "server") else value

    def both(function: object, *args: object, **how: object) -> list[object]:
        return [stable(function(*args, **how)), stable(alice(function, *args, **how))]

    for function, args, how in (
        (inspection.held, (), {"match": "order", "state": "all", "order": "-key", "limit": 2, "cursor": 2}),
        (inspection.find, ("order:1",), {}),
        (inspection.counts, (), {}),
        (inspection.force_release, ("order:1",), {"fence": 1}),
        (diagnosis.facts, (), {}),
        (diagnosis.fences, (), {}),
        (diagnosis.raise_fences, (1,), {}),
    ):
        here, there = both(function, *args, **how)
        assert here == there, function.__name__
    twins = {name for name in dir(inspection) if inspect.iscoroutinefunction(getattr(inspection, name))}
    assert {"aheld", "afind", "acounts", "aforce_release"} == {name for name in twins if name in inspection.__all__}

"""The maintenance thread: it can't be started, the process was forked, or the lease ends while it works."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from django_redis_locks import LockBackendError, clock, locks
from django_redis_locks.client import Locks
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.registry import Registry
from django_redis_locks.testing import ManualClock
from tests.chaos.helpers import LEASE, renewed
from tests.probes.tuning import Tune
from tests.waiting import eventually, in_thread


@pytest.fixture
def memory(settings: Any, request: pytest.FixtureRequest) -> Locks:
    """A store of its own, with a maintenance thread of its own."""
    location = request.node.name
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": location}
    }
    return locks["default"]


def refuse_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_acquire_of_a_renewed_lock_without_a_maintenance_thread_raises_LockBackendError(
    memory: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the system's limit of threads: the error names the lock and the remedy, nothing is granted, and nothing stays
    locked once threads are available again."""
    lock = memory.lock("a", expire=60, renew=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_start)
        with pytest.raises(LockBackendError, match=r"lock 'a', alias 'default'.*limit of threads") as caught:
            lock.acquire()
        with pytest.raises(LockBackendError, match="limit of threads"):
            asyncio.run(lock.aacquire())
        assert (caught.value.key, caught.value.name, caught.value.alias) == ("a", "a", "default")
        assert not lock.owned()
        with memory.lock("fixed", expire=5):
            pass  # needs no thread
    with memory.lock("b", renew=True):
        eventually(lambda: not lock.locked())
    with lock as grant:
        grant.ensure_held(confirm=True)


def test_call_at_that_raises_schedules_nothing(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S6] Its caller tries again; otherwise all attempts would be called once a thread can start."""
    rung: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_start)
        with pytest.raises(LockBackendError, match="limit of threads"):
            memory.engine.call_at(clock.now(), lambda: rung.append(1))
    memory.engine.call_at(clock.now(), lambda: rung.append(2))
    eventually(lambda: 2 in rung)
    assert rung == [2]


def test_acquire_from_a_failing_store_without_threads_raises_the_error_of_the_store(
    memory: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[X2] Scheduling the cleanup fails as well, but the first error is raised."""

    def silent(command: Any) -> Any:
        raise LockBackendError("no answer", outcome_unknown=True, transient=True)

    monkeypatch.setattr(memory.engine.backend, "call", silent)
    monkeypatch.setattr(threading.Thread, "start", refuse_start)
    with pytest.raises(LockBackendError, match="no answer"):
        memory.lock("a", wait=0).acquire()


@pytest.mark.usefixtures("frequent_renewal")
@pytest.mark.parametrize("parents", [False, True], ids=["quiet parent", "parent with a maintenance thread"])
def test_first_hold_after_a_fork_without_hooks_is_renewed(memory: Locks, parents: bool) -> None:
    """[H18] A C extension forks without Python's hooks: the fork is detected before the hold is scheduled."""
    if parents:
        with memory.lock("parent's", renew=True):
            pass
    memory.engine._maintenance._pid = -1
    with memory.lock("a", expire=LEASE, renew=True) as grant:
        renewed(grant)
        grant.ensure_held(confirm=True)


def test_first_cleanup_after_a_fork_without_hooks_is_done(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] [H2] The cleanup after a request without reply."""
    backend, call = memory.engine.backend, memory.engine.backend.call

    def lose_reply(command: Any) -> Any:
        call(command)
        raise LockBackendError("no answer", outcome_unknown=True, transient=True)

    memory.engine._maintenance._pid = -1
    lock = memory.lock("a", expire=60, wait=0)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "call", lose_reply)
        with pytest.raises(LockBackendError):
            lock.acquire()
    eventually(lambda: not lock.locked())


def test_fork_detected_by_two_threads_at_once_resets_the_schedule_once(
    memory: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H18] The second thread doesn't discard what the first one has scheduled since."""
    maintenance, reset, getpid = (
        memory.engine._maintenance,
        memory.engine._maintenance.after_fork_in_child,
        os.getpid,
    )
    resetting, second_checks, proceed = threading.Event(), threading.Event(), threading.Event()
    resets = 0

    def slow_reset() -> None:
        nonlocal resets
        resets += 1
        resetting.set()
        assert proceed.wait(20)
        reset()

    def observed_getpid() -> int:
        if threading.current_thread() is threads[1]:
            second_checks.set()
        return getpid()

    monkeypatch.setattr(maintenance, "after_fork_in_child", slow_reset)
    monkeypatch.setattr(os, "getpid", observed_getpid)
    maintenance._pid = -1
    called = threading.Semaphore(0)
    threads = [threading.Thread(target=maintenance.call_at, args=(clock.now(), called.release)) for _ in range(2)]
    threads[0].start()
    assert resetting.wait(20)
    threads[1].start()
    assert second_checks.wait(20)
    proceed.set()
    assert called.acquire(timeout=20)
    assert called.acquire(timeout=20)
    assert resets == 1


def test_loss_found_just_before_an_extension_is_reported_after_the_new_end(
    memory: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L2] [L3] The maintenance thread finds an expired lease, which is extended before the report: that is
    postponed."""
    reported: list[float] = []
    grant = memory.lock("a", expire=0.5, on_lost=lambda grant: reported.append(clock.now())).acquire()
    lose, end = Hold.mark_lost, 0.0

    def late(hold: Hold, why: str, *more: Any, **at: Any) -> bool:
        nonlocal end
        if not end:
            hold.extend_deadline(clock.now(), 1000)  # as the reply to an extension does
            end = hold.deadline
            assert not lose(hold, why, *more, **at)
            assert not grant.lost
            return False
        return lose(hold, why, *more, **at)

    monkeypatch.setattr(Hold, "mark_lost", late)
    eventually(lambda: reported)
    assert reported[0] >= end
    assert grant.lost


def test_wait_of_centuries_delays_no_other_job(memory: Locks, tune: Tune) -> None:
    """[F2] The thread sleeps until its next job, but an operating system limits the length of one sleep. Timers of
    waiters that have left stay among its jobs."""
    tune(max_poll_interval=0.05)
    lock = memory.lock("a", expire=60)
    held = in_thread(lock.acquire)
    maintenance = memory.engine._maintenance

    async def main() -> None:
        waiting = [asyncio.create_task(lock.aacquire(timeout=1e100)) for _ in range(2)]
        assert await lock.aacquire(timeout=0.1) is None
        for task in waiting:
            task.cancel()
        await asyncio.to_thread(eventually, lambda: maintenance._sleeps_until > 1e90)
        assert await asyncio.wait_for(lock.aacquire(timeout=0.1), 20) is None

    asyncio.run(main())
    held.release()


def test_renewal_of_a_fixed_lease_starts_in_a_crowded_registry(
    memory: Locks, virtual_time: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E3] [E13] The entry that would forget the fixed lease at its end doesn't replace its renewal."""
    monkeypatch.setattr(Registry, "FEW", 0)
    outer = memory.rlock("a", expire=2).acquire()
    with memory.lock("b", expire=0.9, renew=True):
        virtual_time.advance(0.5)  # the first renewal sorts the schedule
    virtual_time.advance(0.5)
    inner = memory.rlock("a", expire=9, renew=True).acquire()
    for _ in range(20):
        virtual_time.advance(0.7)
        assert inner.held
    outer.release()

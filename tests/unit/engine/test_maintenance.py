"""The thread that renews can't be had, or belongs to a process that is another one by now."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from django_redis_locks import LockBackendError, clock, locks
from django_redis_locks.client import Locks
from django_redis_locks.core.hold import Hold
from tests.chaos.helpers import LEASE, renewed
from tests.probes.tuning import Tune
from tests.waiting import eventually, in_thread


@pytest.fixture
def memory(settings: Any, request: pytest.FixtureRequest) -> Locks:
    """A store of its own, with a janitor of its own."""
    location = request.node.name
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": location}
    }
    return locks["default"]


def refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_lease_that_cannot_be_renewed_is_not_granted(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the system's limit of threads: an error of ours that names the lock and says what to do, no grant, and nothing
    stays locked once there are threads again."""
    lock = memory.lock("a", expire=60, renew=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
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


def test_alarm_that_raises_leaves_nothing_to_ring(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S6] Its caller tries again: all of them would ring once there is a thread."""
    rung: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(LockBackendError, match="limit of threads"):
            memory.engine.call_at(clock.now(), lambda: rung.append(1))
    memory.engine.call_at(clock.now(), lambda: rung.append(2))
    eventually(lambda: 2 in rung)
    assert rung == [2]


def test_a_failing_store_stays_the_error_that_is_seen(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[X2] What the attempt may have left is for the janitor; that there is none isn't what went wrong."""

    def silent(command: Any) -> Any:
        raise LockBackendError("no answer", outcome_unknown=True, transient=True)

    monkeypatch.setattr(memory.engine.backend, "call", silent)
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(LockBackendError, match="no answer"):
        memory.lock("a", wait=0).acquire()


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("parents", [False, True], ids=["quiet parent", "parent with a janitor"])
def test_the_first_hold_after_a_fork_unseen_by_python_is_renewed(memory: Locks, parents: bool) -> None:
    """[H18] A C extension forks without the hooks of Python: what is entered here is entered after that was found out."""
    if parents:
        with memory.lock("parent's", renew=True):
            pass
    memory.engine._maintenance._pid = -1
    with memory.lock("a", expire=LEASE, renew=True) as grant:
        renewed(grant)
        grant.ensure_held(confirm=True)


def test_the_first_sweep_after_a_fork_unseen_by_python_is_done(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] [H2] What a request left that nobody answered."""
    backend, call = memory.engine.backend, memory.engine.backend.call

    def unheard(command: Any) -> Any:
        call(command)
        raise LockBackendError("no answer", outcome_unknown=True, transient=True)

    memory.engine._maintenance._pid = -1
    lock = memory.lock("a", expire=60, wait=0)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "call", unheard)
        with pytest.raises(LockBackendError):
            lock.acquire()
    eventually(lambda: not lock.locked())


def test_two_threads_find_the_fork_out_at_once(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] The second one doesn't throw away what the first one has entered since."""
    maintenance, begin_anew, getpid = (
        memory.engine._maintenance,
        memory.engine._maintenance.after_fork_in_child,
        os.getpid,
    )
    found, confirmations, continue_wait = threading.Event(), threading.Event(), threading.Event()
    times = 0

    def slowly() -> None:
        nonlocal times
        times += 1
        found.set()
        assert continue_wait.wait(20)
        begin_anew()

    def looking() -> int:
        if threading.current_thread() is threads[1]:
            confirmations.set()
        return getpid()

    monkeypatch.setattr(maintenance, "after_fork_in_child", slowly)
    monkeypatch.setattr(os, "getpid", looking)
    maintenance._pid = -1
    rung = threading.Semaphore(0)
    threads = [threading.Thread(target=maintenance.call_at, args=(clock.now(), rung.release)) for _ in range(2)]
    threads[0].start()
    assert found.wait(20)
    threads[1].start()
    assert confirmations.wait(20)
    continue_wait.set()
    assert rung.acquire(timeout=20)
    assert rung.acquire(timeout=20)
    assert times == 1


def test_the_news_of_a_loss_that_comes_after_an_extension_is_none(
    memory: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L2] [L3] The lease is over when the janitor looks, and prolonged before it says so: that is put off to the new end."""
    told: list[float] = []
    grant = memory.lock("a", expire=0.5, on_lost=lambda grant: told.append(clock.now())).acquire()
    lose, end = Hold.mark_lost, 0.0

    def late(hold: Hold, why: str, *more: Any, **at: Any) -> bool:
        nonlocal end
        if not end:
            hold.extend_deadline(clock.now(), 1000)  # as the answer to an extension does
            end = hold.deadline
            assert not lose(hold, why, *more, **at)
            assert not grant.lost
            return False
        return lose(hold, why, *more, **at)

    monkeypatch.setattr(Hold, "mark_lost", late)
    eventually(lambda: told)
    assert told[0] >= end
    assert grant.lost


def test_wait_of_centuries_delays_no_other_job(memory: Locks, tune: Tune) -> None:
    """[F2] The thread sleeps until the next thing to do, but no operating system sleeps for so long at once. What nobody
    waits for any more is among what is to do."""
    tune(max_poll_interval=0.05)
    lock = memory.lock("a", expire=60)
    held = in_thread(lock.acquire)
    maintenance = memory.engine._maintenance

    async def main() -> None:
        patient = [asyncio.create_task(lock.aacquire(timeout=1e100)) for _ in range(2)]
        assert await lock.aacquire(timeout=0.1) is None
        for task in patient:
            task.cancel()
        await asyncio.to_thread(eventually, lambda: maintenance._sleeps_until > 1e90)
        assert await asyncio.wait_for(lock.aacquire(timeout=0.1), 20) is None

    asyncio.run(main())
    held.release()

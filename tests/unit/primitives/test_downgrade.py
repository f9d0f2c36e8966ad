"""A write lock that is released before the reads inside of it: interrupted at any step, and with replies that are lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_redis_locks import Grant, LockBackendError, LockLost, ReadWriteLock
from django_redis_locks.core.write_hold import WriteHold
from tests.unit.primitives.scenario import Process, Scenario, VirtualClock


def rwlock(process: Process, **options: Any) -> ReadWriteLock:
    return process.locks.rwlock("a", **options)


class Elsewhere:
    """Calls in the thread of another process."""

    def __init__(self, process: Process) -> None:
        self._lock = rwlock(process)
        self._thread = ThreadPoolExecutor(1)

    def __call__(self, method: Callable[..., Any], *args: Any, **how: Any) -> Any:
        return self._thread.submit(method, *args, **how).result()

    def reads(self) -> Grant | None:
        """Attempt to read."""
        return self(self._lock.read.acquire, timeout=0)

    def writes(self) -> Grant | None:
        """Attempt to write."""
        return self(self._lock.write.acquire, timeout=0)

    def free_by_force(self) -> bool:
        return self(self._lock.write.force_release)


@pytest.fixture
def elsewhere(scenario: Scenario) -> Elsewhere:
    return Elsewhere(scenario.other)


def in_thread(process: Process) -> None:
    lock = rwlock(process)
    writes = lock.write.acquire()
    try:
        with lock.read:
            writes.release()
    finally:
        writes.release()


def in_task(process: Process) -> None:
    async def main() -> None:
        lock = rwlock(process)
        writes = await lock.write.aacquire()
        try:
            async with lock.read:
                await writes.arelease()
        finally:
            await writes.arelease()

    asyncio.run(main())


drives = pytest.mark.parametrize("drive", [in_thread, in_task], ids=["sync", "async"])


@drives
@pytest.mark.parametrize("outcome", ["ok", "lost", "late", "down", "refused"])
def test_exception_at_any_step_of_a_downgrade_leaves_nothing(drive: Any, outcome: str, time: VirtualClock) -> None:
    """[L16] [L35] No lock without an owner, no renewal, no grant."""

    def run(interruption: Any = None) -> tuple[Scenario, BaseException | None]:
        scenario = Scenario(time)
        scenario.process.backend.outcomes["permits/downgrade"] = [outcome]
        scenario.process.interruption = interruption
        try:
            drive(scenario.process)
        except BaseException as error:  # noqa: BLE001 - judged
            return scenario, error
        return scenario, None

    scenario, _ = run()
    assert scenario.process.effects.count("permits/downgrade") >= 1
    assert scenario.leftovers() == []
    errors = (KeyboardInterrupt, asyncio.CancelledError)[: 1 + (drive is in_task)]
    for number, after, kind in itertools.product(range(len(scenario.process.effects)), (False, True), errors):
        error = kind(number)
        interrupted, raised = run((number, after, error))
        where = f"{kind.__name__} {'after' if after else 'before'} {number} of {interrupted.process.effects}"
        assert raised is error or (raised and error in (raised.__context__, raised.__cause__)), where
        assert interrupted.leftovers() == [], where


@pytest.mark.parametrize("outcome", ["lost", "late", "refused", "dropped"])
def test_downgrade_without_a_reply_leaves_a_reader_and_is_repeated(
    outcome: str, scenario: Scenario, elsewhere: Elsewhere
) -> None:
    """[L35] The caller may not write any more, whatever the store knows. The maintenance thread repeats the step until
    other readers get in; a late copy of it changes nothing."""
    process = scenario.process
    process.backend.outcomes["permits/downgrade"] = [outcome, "refused"]
    lock = rwlock(process)
    writes, reads = lock.write.acquire(), lock.read.acquire()
    with pytest.raises(LockBackendError):
        writes.release()
    assert writes.released
    assert reads.held
    assert not lock.write.owned()
    assert lock.read.owned()
    assert elsewhere.writes() is None
    writes.release()
    process.backend.outcomes.clear()
    process.execute_due_jobs()
    process.wait_until_idle()
    reader = elsewhere.reads()
    assert reader is not None
    reads.ensure_held(confirm=True)
    elsewhere(reader.release)
    assert elsewhere.writes() is None
    reads.release()
    assert elsewhere.writes()


def test_downgrade_of_a_lost_lock_raises_and_changes_nothing(scenario: Scenario, elsewhere: Elsewhere) -> None:
    """[L15] [L35]"""
    lock = rwlock(scenario.process)
    writes, reads = lock.write.acquire(), lock.read.acquire()
    assert elsewhere.free_by_force()
    theirs = elsewhere.writes()
    with pytest.raises(LockLost):
        writes.release()
    assert theirs is not None
    elsewhere(theirs.ensure_held, confirm=True)
    assert not reads.held
    elsewhere(theirs.release)


def test_loss_that_is_reported_during_a_downgrade_is_raised(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L15] [L35] The lease ends while the reply is on its way. Its release would succeed after on_lost was called."""
    lock = rwlock(scenario.process)
    writes, reads = lock.write.acquire(), lock.read.acquire()
    call = scenario.process.backend.call

    def call_slowly(command: Any) -> Any:
        reply = call(command)
        writes.hold.mark_lost("expired")
        return reply

    monkeypatch.setattr(scenario.process.backend, "call", call_slowly)
    for grant in (writes, reads):
        with pytest.raises(LockLost, match="expired"):
            grant.release()
    assert scenario.leftovers() == []


def test_release_of_the_reads_ends_a_hold_whose_downgrade_failed(scenario: Scenario, elsewhere: Elsewhere) -> None:
    """[L35]"""
    scenario.process.backend.outcomes["permits/downgrade"] = ["dropped", "refused"]
    lock = rwlock(scenario.process)
    writes, reads = lock.write.acquire(), lock.read.acquire()
    with pytest.raises(LockBackendError):
        writes.release()
    reads.release()
    assert elsewhere.writes()


def test_hold_whose_downgrade_failed_is_downgraded_before_it_is_detached(
    scenario: Scenario, elsewhere: Elsewhere
) -> None:
    """[L7] [L35] Else the store would keep readers away from a reader, and no process would know."""
    scenario.process.backend.outcomes["permits/downgrade"] = ["dropped", "refused"]
    lock = rwlock(scenario.process)
    writes, reads = lock.write.acquire(), lock.read.acquire()
    with pytest.raises(LockBackendError):
        writes.release()
    scenario.process.backend.outcomes.clear()
    scenario.other.locks.attach(reads.detach())
    assert elsewhere.reads()


def test_grant_that_joins_a_write_grant_is_one_itself(scenario: Scenario, elsewhere: Elsewhere) -> None:
    """As that of a transaction does, which keeps the lock."""
    lock = rwlock(scenario.process)
    writes, reads = lock.write.acquire(), lock.read.acquire()
    hold = writes.hold
    assert isinstance(hold, WriteHold)
    assert hold.add_grant(-1, writes.id)
    assert hold.add_grant(-2, reads.id)
    writes.release()
    assert elsewhere.reads() is None
    assert not hold.end_write(-2)
    assert hold.end_write(-1)
    assert not hold.writes
    assert not hold.add_grant(-3, role="write")
    reads.release()
    assert elsewhere.reads() is None
    assert hold.release_grant(-2)

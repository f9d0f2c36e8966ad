"""Read-write locks: many readers or one writer, first come, first served."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from django_redis_locks import (
    LockAlreadyHeld,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    ReadWriteLock,
    inspection,
    locks,
)
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside, on_memory, wait_until_prolonged

pytestmark = pytest.mark.needs("rwlocks")

measures_time = pytest.mark.exact("measures a wait")


def rwlock(face: Face, **options: Any) -> ReadWriteLock:
    return locks.rwlock(face.key, **options)


@pytest.fixture
def carol(face: Face) -> Caller:
    return face.caller()


@pytest.fixture
def crowd(face: Face) -> list[Caller]:
    return [face.caller() for _ in range(5)]


# Readers and writers


def test_many_readers_or_one_writer(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    """[L34] Also among the threads and tasks of one process. Each hold has a fence of its own."""
    lock = rwlock(face)
    first, second = alice(lock.read.acquire), bob(lock.read.acquire)
    assert first.fence < second.fence
    assert [holder.fence for holder in carol(lock.read.holders)] == [first.fence, second.fence]
    assert carol(lock.write.acquire, timeout=0) is None
    assert (carol(lock.read.locked), carol(lock.write.locked)) == (True, False)
    alice(first.release)
    assert carol(lock.write.acquire, timeout=0) is None
    bob(second.release)
    third = carol(lock.write.acquire, timeout=PATIENCE)
    assert third.fence > second.fence
    assert (alice(lock.read.locked), alice(lock.write.locked)) == (False, True)
    assert [holder.fence for holder in alice(lock.write.holders)] == [third.fence]
    for side in (lock.read, lock.write):
        assert alice(side.acquire, timeout=0) is None
    assert carol(lock.write.owned)
    assert not carol(lock.read.owned)
    assert not alice(lock.write.owned)


def test_no_reader_sees_half_of_a_write(face: Face, crowd: list[Caller]) -> None:
    """[L34] Each caller reads and writes. No update is lost, and no write is seen before its end."""
    lock = rwlock(face, wait=PATIENCE)
    pair, readers, most, pause = [0, 0], 0, 0, threading.Event()
    mutex = threading.Lock()

    def read() -> None:
        nonlocal readers, most
        with mutex:
            readers += 1
            most = max(most, readers)
        before = tuple(pair)
        pause.wait(0.002)
        assert tuple(pair) == before
        assert pair[0] == pair[1]
        with mutex:
            readers -= 1

    def write() -> None:
        assert not readers
        pair[0] += 1
        pause.wait(0.002)
        pair[1] = pair[0]
        assert not readers

    def sync_rounds() -> None:
        for _ in range(3):
            with lock.write:
                write()
            with lock.read:
                read()

    async def async_rounds() -> None:
        for _ in range(3):
            async with lock.write:
                await asyncio.to_thread(write)
            async with lock.read:
                await asyncio.to_thread(read)

    rounds = [caller.start(async_rounds if face.is_async else sync_rounds) for caller in crowd]
    for future in rounds:
        future.result(PATIENCE)
    assert pair == [3 * len(crowd)] * 2


@pytest.mark.usefixtures("no_polling")
@measures_time
def test_waiting_writer_stops_new_readers_and_follows_the_old_ones(
    face: Face, alice: Caller, bob: Caller, carol: Caller
) -> None:
    """[L34] A stream of readers doesn't starve it."""
    lock = rwlock(face)
    reads = alice(lock.read.acquire)
    writer = face.start_waiting(bob, lock.write, timeout=PATIENCE)
    face.wait_until_registered(lock.write)
    assert carol(lock.read.acquire, blocking=False) is None
    reader = face.start_waiting(carol, lock.read, timeout=PATIENCE)
    face.wait_until_registered(lock.read)
    alice(reads.release)
    writes = writer.result(PATIENCE)
    assert not reader.done()
    bob(writes.release)
    assert reader.result(PATIENCE)


@pytest.mark.usefixtures("no_polling")
@measures_time
def test_release_of_a_writer_lets_all_readers_in(face: Face, alice: Caller, crowd: list[Caller]) -> None:
    """Each reader gets the lock with the message, so it sends no request."""
    lock = rwlock(face)
    grant = alice(lock.write.acquire)
    waiting = [face.start_waiting(caller, lock.read, timeout=PATIENCE) for caller in crowd]
    face.wait_until_registered(lock.read)
    with face.commands() as commands:
        alice(grant.release)
        fences = {future.result(PATIENCE).fence for future in waiting}
    assert commands == ["permits/release"]
    assert len(fences) == len(crowd)


def test_writer_that_gives_up_lets_new_readers_in(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    """[L34] [L33] Readers that already wait, too."""
    lock = rwlock(face)
    alice(lock.read.acquire)
    writer = face.start_waiting(bob, lock.write, timeout=1)
    reader = face.start_waiting(carol, lock.read, timeout=PATIENCE)
    assert writer.result(PATIENCE) is None
    assert reader.result(PATIENCE)
    assert bob(lock.read.acquire, timeout=PATIENCE)


# Re-entry, downgrade, upgrade


def test_owner_of_a_side_enters_it_again_without_a_request(face: Face, alice: Caller, bob: Caller) -> None:
    """[L13] The last release ends the hold. A reader enters again although a writer waits."""
    lock = rwlock(face)
    for side, other in ((lock.read, lock.write), (lock.write, lock.read)):
        outer = alice(side.acquire)
        waiting = face.start_waiting(bob, other, timeout=PATIENCE)
        with face.commands() as commands:
            inner = [alice(side.acquire), alice(side.acquire, timeout=0), alice(side.__enter__)]
            assert {grant.hold for grant in inner} == {outer.hold}
            alice(side.__exit__, None, None, None)
            alice(outer.release)
            alice(inner[0].release)
        assert not [name for name in commands if name == "permits/release"]
        assert not waiting.done()
        assert alice(side.owned)
        alice(side.release)
        with pytest.raises(LockNotOwned):
            alice(side.release)
        bob(waiting.result(PATIENCE).release)


def test_writer_reads_without_a_request(face: Face, alice: Caller, bob: Caller) -> None:
    lock = rwlock(face)
    with inside(alice, lock.write) as writes:
        with face.commands() as commands, inside(alice, lock.read) as reads:
            assert reads.hold is writes.hold
            assert alice(lock.read.owned)
        assert commands == []
        assert not alice(lock.read.owned)
        assert bob(lock.read.acquire, timeout=0) is None
    assert bob(lock.write.acquire, timeout=PATIENCE)


@pytest.mark.usefixtures("no_polling")
@measures_time
def test_writer_that_releases_its_write_lock_first_goes_on_as_a_reader(
    face: Face, alice: Caller, bob: Caller, carol: Caller
) -> None:
    """[L35] With the same fence, in one step, and without another writer in between."""
    lock = rwlock(face)
    writes, reads = alice(lock.write.acquire), alice(lock.read.acquire)
    reader = face.start_waiting(bob, lock.read, timeout=PATIENCE)
    face.wait_until_registered(lock.read)
    writer = face.start_waiting(carol, lock.write, timeout=PATIENCE)
    face.wait_until_registered(lock.write)
    with face.commands() as commands:
        alice(writes.release)
        other = reader.result(PATIENCE)
    assert commands == ["permits/downgrade"]
    assert writes.released
    assert reads.held
    assert not alice(lock.write.owned)
    assert {holder.fence for holder in alice(lock.read.holders)} == {reads.fence, other.fence}
    assert reads.fence == writes.fence
    alice(reads.ensure_held, confirm=True)
    assert not writer.done()
    alice(reads.release)
    bob(other.release)
    assert writer.result(PATIENCE)


def test_write_lock_that_was_entered_twice_is_left_with_the_last_release(
    face: Face, alice: Caller, bob: Caller
) -> None:
    lock = rwlock(face)
    with inside(alice, lock.write):
        reads = alice(lock.read.acquire)
        with inside(alice, lock.write):
            pass
        assert bob(lock.read.acquire, timeout=0) is None
    with inside(bob, rwlock(face, wait=PATIENCE).read):
        alice(reads.ensure_held, confirm=True)
        with inside(alice, lock.read) as again:
            assert again.hold is reads.hold
        alice(reads.release)
    assert bob(lock.write.acquire, timeout=PATIENCE)


@pytest.mark.usefixtures("frequent_renewal")
@measures_time
def test_renewal_goes_on_after_a_downgrade(face: Face, alice: Caller, bob: Caller) -> None:
    """[L35]"""
    lock = rwlock(face)
    writes, reads = alice(lock.write.acquire), alice(lock.read.acquire)
    alice(writes.release)
    wait_until_prolonged(lambda: alice(lock.read.holders)[0].lease_left)
    assert reads.held


def test_reader_that_wants_to_write_raises_at_once(face: Face, alice: Caller, bob: Caller) -> None:
    """[L35] Two of them would wait for each other. So does a former writer."""
    lock = rwlock(face, wait=PATIENCE)
    with inside(alice, lock.read):
        with face.commands() as commands, pytest.raises(LockAlreadyHeld, match="the caller reads, and a writer waits"):
            alice(lock.write.acquire)
        assert alice(lock.write.acquire, blocking=False) is None
        assert commands == []
        assert bob(lock.read.acquire)
        bob(lock.read.release)
    writes = alice(lock.write.acquire)
    with inside(alice, lock.read):
        alice(writes.release)
        with pytest.raises(LockAlreadyHeld, match="Release the read lock first"):
            alice(lock.write.acquire, timeout=5)


def test_half_of_an_owner_raises_where_it_would_wait_for_itself(face: Face, alice: Caller) -> None:
    """[L35] A child task, or a thread that serves another request. It may read beside a reader."""
    lock = rwlock(face, wait=PATIENCE)
    with inside(alice, lock.read) as grant:
        with pytest.raises(LockAlreadyHeld):
            alice.as_half_owner(lock.write.acquire)
        other = alice.as_half_owner(lock.read.acquire)
        assert other.hold is not grant.hold
        alice(other.release)
    with inside(alice, lock.write):
        for side in (lock.read, lock.write):
            with pytest.raises(LockAlreadyHeld):
                alice.as_half_owner(side.acquire)


# Leases and losses


@pytest.mark.usefixtures("frequent_renewal")
@measures_time
def test_dead_reader_is_not_kept_alive_by_the_renewals_of_others(face: Face, alice: Caller, bob: Caller) -> None:
    """[L36] Each reader has a lease of its own."""
    lock = rwlock(face)
    grant = alice(lock.read.acquire)
    dead = bob(rwlock(face, expire=0.5, auto_release=False).read.acquire)
    eventually(lambda: [holder.fence for holder in alice(lock.read.holders)] == [grant.fence])
    assert dead.fence != grant.fence
    wait_until_prolonged(lambda: alice(lock.read.holders)[0].lease_left)


@measures_time
def test_lock_of_a_writer_that_is_gone_is_free_after_its_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[L34]"""
    alice(rwlock(face, expire=0.3, auto_release=False).write.acquire)
    lock = rwlock(face)
    assert bob(lock.read.acquire, timeout=0) is None
    assert bob(lock.read.acquire, timeout=PATIENCE)


def test_forced_release_concerns_one_side(face: Face, alice: Caller, bob: Caller) -> None:
    lock = rwlock(face)
    first, second = alice(lock.read.acquire), bob(lock.read.acquire)
    assert not bob(lock.write.force_release)
    assert not bob(lock.write.force_release, fence=first.fence)
    alice(first.ensure_held, confirm=True)
    assert bob(lock.read.force_release, fence=first.fence)
    with pytest.raises(LockLost):
        alice(first.release)
    bob(second.ensure_held, confirm=True)
    assert alice(lock.read.force_release)
    with pytest.raises(LockLost):
        bob(second.release)
    assert not alice(lock.read.force_release)


def test_loss_of_a_write_lock_is_reported_at_its_release_and_at_that_of_the_reads(face: Face, alice: Caller) -> None:
    """[L15] Both ran unprotected."""
    lock = rwlock(face)
    writes, reads = alice(lock.write.acquire), alice(lock.read.acquire)
    alice(lock.write.force_release)
    for grant in (writes, reads):
        with pytest.raises(LockLost):
            alice(grant.release)
    assert alice(lock.write.acquire, timeout=PATIENCE)


@measures_time
def test_on_lost_gets_a_grant_that_is_not_released(face: Face, alice: Caller) -> None:
    lost: list[Any] = []
    lock = rwlock(face, expire=0.4, on_lost=lost.append)
    writes, reads = alice(lock.write.acquire), alice(lock.read.acquire)
    alice(writes.release)
    del writes
    alice(lock.read.force_release)
    eventually(lambda: lost)
    assert lost[0] is reads


# Other kinds, inspection, arguments


def test_other_kind_under_the_key_is_refused(face: Face, alice: Caller, bob: Caller) -> None:
    lock = rwlock(face)
    grant = alice(lock.read.acquire)
    for other, kind in ((locks.semaphore(face.key, 3), "semaphore"), (face.lock(), "lock")):
        with pytest.raises(LockKeyError, match=f"as a {kind}: its key holds a lock of kind rwlock"):
            bob(other.acquire)
    for mutex in (face.lock(), face.rlock()):
        with pytest.raises(LockKeyError):
            alice(mutex.acquire)
        assert not alice(mutex.owned)
    alice(grant.release)
    bob(face.lock().acquire)
    for call in (lock.read.acquire, lock.write.acquire, lock.read.holders):
        with pytest.raises(LockKeyError, match="as a rwlock: its key holds a lock of kind lock"):
            alice(call)


def test_busy_lock_names_a_holder(face: Face, alice: Caller, bob: Caller) -> None:
    grant = alice(rwlock(face).read.acquire)
    with pytest.raises(LockNotAcquired) as refused:
        bob(rwlock(face, wait=0).write.acquire)
    assert refused.value.holder is not None
    assert refused.value.holder.fence == grant.fence


def test_read_write_lock_is_listed_with_its_holders(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    face.isolate()
    lock = rwlock(face, note="nightly")
    first, second = alice(lock.read.acquire), bob(lock.read.acquire)
    (info,) = alice(inspection.held).rows
    assert (info.kind, info.state, info.limit) == ("rwlock", "held", None)
    assert [holder.fence for holder in info.holders] == [first.fence, second.fence]
    assert alice(inspection.force_release, face.key, fence=first.fence)
    assert [holder.fence for holder in alice(inspection.find, face.key).holders] == [second.fence]
    assert alice(inspection.force_release, face.key)
    assert carol(lock.write.acquire, timeout=PATIENCE)
    assert alice(inspection.force_release, face.key)
    assert alice(inspection.held).rows == []


@on_memory
def test_sides_have_the_key_name_and_options_of_their_lock(face: Face) -> None:
    lock = locks.rwlock("order:7", name="order")
    for each in (lock, lock.read, lock.write):
        assert (each.key, each.name, each.alias) == ("order:7", "order", "default")
    assert repr(lock) == "<ReadWriteLock 'order' of 'default'>"
    assert repr(lock.write) == "<WriteLock 'order' of 'default'>"
    with pytest.raises(TypeError, match="read-write lock"):
        locks.rwlock("order:7", limit=3)  # type: ignore[arg-type]

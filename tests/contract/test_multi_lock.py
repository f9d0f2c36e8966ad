"""Several locks that are acquired all or none. tests/chaos/test_multi_lock.py has several processes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from django_redis_locks import (
    LockAlreadyHeld,
    LockBackendError,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    MultiLock,
    current_grant,
    inspection,
    locks,
)
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside, on_memory, tasks_only, wait_for_renewal
from tests.probes.engine import delay_one_command, lose_one_reply, lost_replies

pytestmark = pytest.mark.needs("multi")


def keys_of(face: Face, count: int = 2) -> list[str]:
    return [f"{face.key}:{number}" for number in range(count)]


def multi(face: Face, count: int = 2, **options: Any) -> MultiLock:
    return locks.multi_lock(*keys_of(face, count), **options)


@pytest.fixture
def carol(face: Face) -> Caller:
    return face.caller()


# All or none


def test_all_locks_are_held_and_released_together(face: Face, alice: Caller, bob: Caller) -> None:
    """[L38] [L41] Each has a fence of its own, which grows with every hold of its key."""
    keys = keys_of(face, 3)
    last = dict.fromkeys(keys, 0)
    for lock in (multi(face, 3), locks.multi_lock(*reversed(keys))):
        with inside(alice, lock) as grant:
            assert grant.held
            assert grant.protected
            assert alice(lock.owned)
            assert not bob(lock.owned)
            assert grant.fences == {key: bob(locks.lock(key).holder).fence for key in keys}
            assert all(grant.fences[key] > last[key] for key in keys)
            last = dict(grant.fences)
            for key in keys:
                assert bob(locks.lock(key).acquire, blocking=False) is None
            assert bob(lock.acquire, blocking=False) is None
        assert grant.released
        assert not any(bob(locks.lock(key).locked) for key in keys)


def test_one_busy_lock_leaves_the_others_free(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    """[L38] Also while a caller waits for it; when it is granted that one, it gets all."""
    lock = multi(face, 3)
    first, second, third = (locks.lock(key) for key in keys_of(face, 3))
    for busy, others in ((first, (second, third)), (third, (first, second))):
        held = bob(busy.acquire)
        assert alice(lock.acquire, blocking=False) is None
        with pytest.raises(LockNotAcquired) as refused:
            alice(multi(face, 3, wait=0).acquire)
        assert refused.value.key == busy.key
        assert refused.value.holder.fence == held.fence
        waiting = face.start_waiting(alice, lock, on=busy, timeout=PATIENCE)
        for other in others:
            with inside(carol, other):
                pass
        bob(held.release)
        grant = waiting.result(PATIENCE)
        assert grant.fences[busy.key] > held.fence
        alice(grant.release)


@pytest.mark.exact("counts commands")
def test_free_locks_cost_two_requests(face: Face, alice: Caller) -> None:
    """[L38] One to acquire all, one to release them. On a Cluster for each bucket: the keys of a script are on one
    node."""
    if len(locks["default"].indexes) > 1:
        pytest.skip("the keys are in several buckets")
    lock = multi(face, 20)
    with face.commands() as commands:
        alice(alice(lock.acquire).release)
    assert commands == ["multi/acquire", "multi/release"]


def test_opposed_orders_cause_no_deadlock_and_lose_no_update(face: Face) -> None:
    """[L38] Each caller names the keys in another order; some of them take only two, or one."""
    keys, counts, rounds = keys_of(face, 3), [0, 0, 0], 8

    def order(number: int) -> list[int]:
        return [[0, 1, 2], [2, 1, 0], [1, 0], [2, 0], [1]][number % 5]

    def add(numbers: list[int], before: list[int]) -> None:
        for number, count in zip(numbers, before, strict=True):
            counts[number] = count + 1

    def sync_rounds(numbers: list[int]) -> None:
        for _ in range(rounds):
            with locks.multi_lock(*(keys[number] for number in numbers), wait=PATIENCE):
                add(numbers, [counts[number] for number in numbers])

    async def async_rounds(numbers: list[int]) -> None:
        for _ in range(rounds):
            async with locks.multi_lock(*(keys[number] for number in numbers), wait=PATIENCE):
                before = [counts[number] for number in numbers]
                await asyncio.sleep(0)
                add(numbers, before)

    callers = [face.caller() for _ in range(10)]
    work = async_rounds if face.is_async else sync_rounds
    for future in [caller.start(work, order(number)) for number, caller in enumerate(callers)]:
        future.result(PATIENCE)
    assert counts == [2 * rounds * sum(number in order(each) for each in range(5)) for number in range(3)]


def test_wait_that_is_over_leaves_nothing_in_line(face: Face, alice: Caller, bob: Caller) -> None:
    """[L38] [L33] The time is that of all locks together."""
    keys = keys_of(face)
    with inside(bob, locks.lock(keys[1])):
        with pytest.raises(LockNotAcquired) as refused:
            alice(multi(face, wait=0.2).acquire)
        assert refused.value.waited >= 0.2
        assert alice(multi(face).acquire, timeout=0.05) is None
        eventually(lambda: inspection.find(keys[1]).waiting == 0)
        assert not bob(locks.lock(keys[0]).locked)


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("a waiter whose request got no reply is registered again, behind the others")
def test_release_grants_each_lock_to_its_next_waiter(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    """[L38] [L31]"""
    first, second = (locks.fair_lock(key) for key in keys_of(face))
    grant = alice(multi(face).acquire)
    waiting = []
    for caller, lock in ((bob, first), (carol, second)):
        waiting.append(face.start_waiting(caller, lock, timeout=PATIENCE))
        face.wait_until_registered(lock)
    alice(grant.release)
    assert [future.result(PATIENCE).key for future in waiting] == keys_of(face)


@tasks_only
def test_cancelled_waiter_keeps_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """[L38] [L30] Neither a lock nor a place in line."""
    keys = keys_of(face)
    tasks: list[asyncio.Task[Any]] = []

    async def wait() -> None:
        tasks.append(asyncio.ensure_future(multi(face).aacquire(timeout=PATIENCE)))
        await asyncio.wait(tasks)

    with inside(bob, locks.lock(keys[1])):
        waiting = alice.start(wait)
        eventually(lambda: inspection.find(keys[1]).waiting == 1)
        tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)
        waiting.result(PATIENCE)
        assert tasks[0].cancelled()
        eventually(lambda: inspection.find(keys[1]).waiting == 0)
    eventually(lambda: inspection.find(keys[1]).holder is None)
    assert inspection.find(keys[0]).holder is None


# Faults


@pytest.mark.exact("plans its own fault")
def test_acquire_and_release_survive_a_lost_reply(
    face: Face, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L38] [H2] The repeated request gets the same fences; a repeated release finds that all are free."""
    for name in ("multi/acquire", "multi/release"):
        lose_one_reply(monkeypatch, name)
    with inside(alice, multi(face, wait=PATIENCE)) as grant:
        assert grant.fences == {key: bob(locks.lock(key).holder).fence for key in keys_of(face)}
    assert bob(multi(face).acquire, timeout=PATIENCE)


@pytest.mark.exact("plans its own fault")
def test_attempt_without_a_reply_leaves_no_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[L38] [L16] What it may have acquired is freed in the background."""
    alice(alice(multi(face).acquire).release)
    with lost_replies(), pytest.raises(LockBackendError):
        alice(multi(face).acquire, timeout=0)
    eventually(lambda: not any(bob(locks.lock(key).locked) for key in keys_of(face)))


@pytest.mark.usefixtures("frequent_renewal")
@pytest.mark.exact("a repeated release finds the lock gone [H15]")
def test_grant_is_lost_if_one_of_its_locks_is(face: Face, alice: Caller, bob: Caller) -> None:
    """[L38] [L25] on_lost is called once, with the grant of all; the release frees the others, and raises."""
    told: list[Any] = []
    keys = keys_of(face, 3)
    grant = alice(multi(face, 3, on_lost=told.append).acquire)
    for key in keys[:2]:
        assert bob(locks.lock(key).force_release)
    eventually(lambda: told and grant.grants[keys[0]].lost and grant.grants[keys[1]].lost)
    locks["default"].engine.wait_until_idle(PATIENCE)
    assert told == [grant]
    assert grant.lost
    assert not grant.held
    assert grant.remaining() == 0.0
    with pytest.raises(LockLost):
        grant.ensure_held()
    assert bob(locks.lock(keys[2]).locked)
    with pytest.raises(LockLost):
        alice(grant.release)
    assert not bob(locks.lock(keys[2]).locked)


@pytest.mark.usefixtures("frequent_renewal")
def test_all_locks_are_renewed_and_extended(face: Face, alice: Caller, bob: Caller) -> None:
    """[L19] [L38]"""
    members = [locks.lock(key) for key in keys_of(face)]
    with inside(alice, multi(face, expire=20, renew=True)) as grant:
        wait_for_renewal(bob, *members)
        alice(grant.extend, 300)
        assert all(bob(member.holder).lease_left > 200 for member in members)
        assert grant.remaining() > 200
        alice(grant.ensure_held, confirm=True)


@pytest.mark.exact("an error of the network may be in a cycle")
def test_abandoned_grant_is_in_no_cycle(face: Face, alice: Caller) -> None:
    """[L19] A hold is renewed while it is referenced, so no garbage collection may be needed to end that."""
    gc.disable()
    try:
        grant = alice(multi(face).acquire)
        holds = [weakref.ref(each.hold) for each in grant.grants.values()]
        alice(grant.release)
        del grant
        alice(current_grant)  # its last call referenced the grant
        eventually(lambda: not any(hold() for hold in holds))
    finally:
        gc.enable()


# Locks of the caller, of other kinds and of other aliases


def test_lock_that_the_caller_holds_is_refused(face: Face, alice: Caller) -> None:
    """[L38] [L9] Nothing is acquired; a re-entrant one is entered once more."""
    first, second = keys_of(face)
    with inside(alice, locks.lock(second)) as held:
        with pytest.raises(LockAlreadyHeld) as refused:
            alice(multi(face).acquire)
        assert refused.value.key == second
        assert alice(multi(face).acquire, blocking=False) is None
        assert not alice(locks.lock(first).locked)
        with inside(alice, locks.multi_lock(first, locks.rlock(second))) as grant:
            assert grant.fences[second] == held.fence
        assert held.held
    assert not alice(locks.lock(second).locked)
    with pytest.raises(LockNotOwned):
        alice(multi(face).release)


def test_kinds_and_aliases_are_mixed(face: Face, alice: Caller, bob: Caller) -> None:
    """[L38] A busy one leaves all others free, whatever their kind."""
    face.add_alias("other")
    first, second, third = keys_of(face, 3)
    semaphore, other = locks.semaphore(third, limit=1), locks["other"].lock(f"{face.key}:o")
    rwlock = locks.rwlock(second)
    lock = locks.multi_lock(first, rwlock.read, semaphore, other, locks.fair_lock(f"{face.key}:f"), wait=PATIENCE)

    def busy() -> list[bool]:
        return [bob(each.locked) for each in (locks.lock(first), rwlock.read, semaphore, other)]

    with inside(alice, lock) as grant:
        assert len(grant.fences) == 5
        assert busy() == [True] * 4
        with inside(bob, rwlock.read):
            pass
        assert bob(lock.acquire, blocking=False) is None
    for each in (rwlock.write, semaphore, other):
        held = bob(each.acquire)
        assert alice(lock.acquire, blocking=False) is None
        waiting = face.start_waiting(alice, lock, on=each, timeout=PATIENCE)
        assert sum(busy()) == (each is not rwlock.write)
        bob(held.release)
        alice(waiting.result(PATIENCE).release)
    assert busy() == [False] * 4


@on_memory
@pytest.mark.parametrize("delay", [6.0, 12.0])
def test_lease_that_is_half_over_is_extended_and_one_that_ended_begins_again(
    face: Face, alice: Caller, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    """[L38] The first lock has a lease of ten seconds, and the store of the second one is slow once."""
    face.add_alias("slow")
    first, second = locks.lock(face.key, expire=10), locks["slow"].lock(f"{face.key}:slow", expire=10)
    delay_one_command(monkeypatch, "slow", lambda: manual_clock.advance(delay))
    with inside(alice, locks.multi_lock(first, second, wait=60)) as grant:
        assert grant.held
        assert grant.remaining() > (3 if delay < 10 else 9)
        assert all(each.remaining() > 5 for each in grant.grants.values() if each.key == first.key)


def test_current_grant_and_release_mean_all_locks(face: Face, alice: Caller) -> None:
    lock = multi(face)

    with inside(alice, lock) as grant:
        assert alice(current_grant) is grant
        assert repr(grant) == "<MultiGrant of 2 locks: thing, held>"
        with pytest.raises(AttributeError, match=r"grant\.fences\[key\]"):
            grant.fence  # noqa: B018
        with pytest.raises(TypeError, match="can't be detached"):
            alice(grant.detach)
    assert alice(lock.acquire)
    alice(multi(face).release)
    assert alice(current_grant) is None
    with pytest.raises(LockNotOwned):
        alice(lock.release)


# Bad arguments


@on_memory
def test_bad_locks_are_refused_when_the_lock_is_made(face: Face) -> None:
    """[L38]"""
    face.add_alias("other")
    own, other = locks.lock("a"), locks["other"]
    bad: list[tuple[list[Any], type[Exception], str]] = [
        ([], LockKeyError, "has 1 to 100 keys, not 0"),
        ([f"{number}" for number in range(101)], LockKeyError, "not 101"),
        (["a", "b", "a"], LockKeyError, "two parts are the same lock 'a'"),
        ([own, "a"], LockKeyError, "the same lock"),
        ([locks.rwlock("a").read, locks.rwlock("a").write], LockKeyError, "the same lock"),
        (["a", other.lock("a")], LockKeyError, "would name both"),
        ([["a", "b"]], LockKeyError, r"not list: write multi_lock\(\*keys\)"),
        ([locks.rwlock("a")], LockKeyError, "its side read or write"),
        ([locks.multi_lock("a")], LockKeyError, "not MultiLock"),
        ([""], LockKeyError, "is empty"),
        ([locks.lock("a", expire=1, auto_release=False)], TypeError, "auto_release=False"),
    ]
    for members, error, text in bad:
        with pytest.raises(error, match=text):
            locks.multi_lock(*members)
    with pytest.raises(TypeError, match="a multi lock"):
        locks.multi_lock("a", colour="red")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_lost"):
        locks.multi_lock("a", on_lost="stop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cancels a task"):
        locks.multi_lock("a", on_lost="cancel").acquire()

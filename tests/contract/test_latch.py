"""Latches: the count, each call and participant counted once, waking everybody, and the end of a latch."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from django_redis_locks import Latch, LockBackendError, LockKeyError, LockLost, locks
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, on_memory, threads_only
from tests.probes.engine import all_registered, ignore_wake_ups, lose_one_reply, waiters

pytestmark = pytest.mark.needs("latches")


@pytest.fixture
def latch(face: Face) -> Latch:
    return locks.latch(face.key)


def start_waiting(latch: Latch, caller: Caller, *timeout: float) -> Future[Any]:
    """Let a caller wait, and return when it is registered in the store."""
    before = waiters(latch)
    waiting = caller.start(latch.wait, *timeout)
    eventually(lambda: waiting.done() or (not before.issuperset(waiters(latch)) and all_registered(latch)))
    return waiting


@pytest.mark.usefixtures("no_polling")
def test_last_count_wakes_all_waiters(face: Face, latch: Latch, alice: Caller) -> None:
    """[L40] Redisson wakes one of them. A later waiter finds the latch open."""
    assert alice(latch.try_set, 2)
    waiting = [start_waiting(latch, face.caller()) for _ in range(3)]
    assert alice(latch.count_down) == 1
    assert not any(future.done() for future in waiting)
    assert alice(latch.count_down) == 0
    assert [future.result(PATIENCE) for future in waiting] == [True] * 3
    assert alice(latch.wait)
    assert face.queued(latch) == 0


@pytest.mark.exact("counts commands")
@pytest.mark.usefixtures("no_polling")
def test_open_latch_is_reported_to_all_waiters_of_a_process_by_one_request(
    face: Face, latch: Latch, alice: Caller
) -> None:
    """And one registration serves all of them."""
    alice(latch.try_set, 1)
    waiting = [start_waiting(latch, face.caller()) for _ in range(20)]
    with face.commands() as sent:
        alice(latch.count_down)
        assert all(future.result(PATIENCE) for future in waiting)
    assert sent == ["latch/count_down", "latch/get"]


def test_latch_that_is_not_set_is_open(latch: Latch, alice: Caller) -> None:
    """[L40] As in Java, a count below 0 changes nothing."""
    assert alice(latch.wait)
    assert alice(latch.count) == alice(latch.count_down) == alice(latch.count_down, "a") == 0
    assert alice(latch.try_set, 2)
    assert alice(latch.count) == 2
    assert alice(latch.count_down, "a") == 1


def test_wait_for_a_closed_latch_ends_after_its_timeout(face: Face, latch: Latch, alice: Caller) -> None:
    alice(latch.try_set, 1)
    assert [alice(latch.wait, 0), alice(latch.wait, 0.05)] == [False, False]
    assert face.queued(latch) == 0


def test_only_an_open_latch_can_be_set(latch: Latch, alice: Caller, bob: Caller) -> None:
    """Participants count anew."""
    assert alice(latch.try_set, 2)
    assert not bob(latch.try_set, 5)
    assert [bob(latch.count_down, "b"), alice(latch.count_down)] == [1, 0]
    assert bob(latch.try_set, 2)
    assert [bob(latch.count_down, "b"), alice(latch.count)] == [1, 1]


def test_participant_counts_once(latch: Latch, alice: Caller, bob: Caller) -> None:
    """[L40] A task that is delivered again has the same id."""
    alice(latch.try_set, 4)
    left = [
        caller(latch.count_down, participant)
        for caller, participant in [
            (alice, "a"),
            (bob, "a"),
            (bob, "ä b"),
            (alice, None),
            (alice, "a"),
            (bob, "ä b"),
            (alice, None),
        ]
    ]
    assert left == [3, 3, 2, 1, 1, 1, 0]


@pytest.mark.parametrize("participant", [None, "a"])
def test_call_whose_reply_is_lost_counts_once(
    latch: Latch, alice: Caller, participant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L40] Its request is repeated. So is that of a call that sets the latch."""
    lose_one_reply(monkeypatch, "latch/set")
    assert alice(latch.try_set, 3)
    lose_one_reply(monkeypatch, "latch/count_down")
    assert alice(latch.count_down, participant) == 2
    assert alice(latch.count_down, "b") == 1


@on_memory
def test_waiter_of_a_latch_that_is_set_again_learns_that_its_own_was_open(
    latch: Latch, alice: Caller, bob: Caller, face: Face, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it asks late, since it gets no message. One that waits for the later count isn't told that it is open."""
    ignore_wake_ups(monkeypatch)
    carol = face.caller()
    carol(latch.try_set, 1)
    first = start_waiting(latch, alice)
    for _ in range(3):
        carol(latch.count_down)
        assert carol(latch.try_set, 1)
    second = start_waiting(latch, bob)
    manual_clock.advance(3)
    assert first.result(PATIENCE)
    assert not second.done()
    carol(latch.count_down)
    manual_clock.advance(3)
    assert second.result(PATIENCE)


@on_memory
def test_latch_lives_for_a_time_after_its_last_change(latch: Latch, alice: Caller, manual_clock: ManualClock) -> None:
    """What counts nothing is no change. By default it lives for a day, whatever EXPIRE says."""
    alice(latch.try_set, 3, 60)
    for seconds, participant, left in [(50, "a", 2), (50, "b", 1), (50, "a", 1), (9, None, 0)]:
        manual_clock.advance(seconds)
        assert alice(latch.count_down, participant) == left
    alice(latch.try_set, 3)
    manual_clock.advance(86_399)
    assert alice(latch.count) == 3
    manual_clock.advance(1)
    assert alice(latch.count) == 0


@on_memory
def test_latch_that_ends_uncounted_is_lost_for_its_waiters(
    face: Face, latch: Latch, alice: Caller, bob: Caller, manual_clock: ManualClock
) -> None:
    """[L40] Redisson's has no end: a dead participant leaves its waiters waiting for ever. Later callers find it open."""
    alice(latch.try_set, 2, 60)
    waiting = [start_waiting(latch, caller) for caller in (alice, bob)]
    manual_clock.advance(59)
    assert not any(future.done() for future in waiting)
    manual_clock.advance(3)
    for future in waiting:
        with pytest.raises(LockLost, match="ended before it was counted down") as lost:
            future.result(PATIENCE)
        assert (lost.value.key, lost.value.alias) == (face.key, "default")
    assert alice(latch.wait)


def test_key_of_a_latch_holds_nothing_else(face: Face, latch: Latch, alice: Caller) -> None:
    """Nor does the key of a lock or a record hold a latch. Nothing is changed."""
    alice(latch.try_set, 2)
    others = face.lock(), face.record()
    for call in (others[0].acquire, others[0].holder, others[1].get, lambda: None)[:3]:
        with pytest.raises(LockKeyError, match="latch"):
            alice(call)
    with pytest.raises(LockKeyError, match="latch"):
        alice(others[1].put, None, {})
    assert not alice(others[0].force_release)
    assert alice(latch.count) == 2
    lock, record = face.lock(f"{face.key}:lock"), locks.record(f"{face.key}:record")
    alice(lock.acquire)
    alice(record.put, None, {"n": 1})
    for key, what in ((lock.key, "a lock of kind lock"), (record.key, "a record")):
        other = locks.latch(key)
        for call, *arguments in ((other.try_set, 1), (other.count_down,), (other.count,), (other.wait, 0)):
            with pytest.raises(LockKeyError, match=what):
                alice(call, *arguments)
    assert alice(lock.holder)
    assert alice(record.get).fields == {"n": 1}


@on_memory
def test_wrong_arguments_raise_ValueError(latch: Latch, alice: Caller) -> None:
    for n in (0, -1, True, 1.5, "3", 10**9 + 1):
        with pytest.raises(ValueError, match="n must be"):
            alice(latch.try_set, n)
    for participant in ("", "é" * 101, 5, "\ud800"):
        with pytest.raises(ValueError, match=r"participant|surrogates"):
            alice(latch.count_down, participant)
    for how in ({"timeout": -2}, {"timeout": "1"}):
        with pytest.raises(ValueError, match="timeout"):
            alice(latch.wait, **how)
    with pytest.raises(ValueError, match="expire"):
        alice(latch.try_set, 1, 0)
    with pytest.raises(TypeError, match=r"'expire'; it is an argument of try_set"):
        locks.latch("a", expire=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a latch has no argument 'wait'"):
        locks.latch("a", wait=5)  # type: ignore[arg-type]


@on_memory
def test_server_that_is_down_is_an_error(face: Face, alice: Caller, settings: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "BACKEND_WAIT": 0}}
    latch = locks.latch(face.key)
    for call, *arguments in ((latch.try_set, 1), (latch.count_down,), (latch.count,), (latch.wait,)):
        with pytest.raises(LockBackendError) as down:
            alice(call, *arguments)
        assert down.value.key == face.key


@threads_only
def test_equal_latches_are_equal(face: Face, latch: Latch) -> None:
    assert latch == locks.latch(face.key)
    assert {latch, locks.latch(face.key)} == {latch}

"""Waiting for a load, its renewal, and waiters and loaders that are killed or get no reply, with both APIs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, on_memory, start_queueing, wait_until_prolonged
from tests.probes.engine import all_registered, engine, lost_replies, strike_head
from tests.probes.load import BUSY, CLAIMED, FAILED, FRESH, MINUTE, LoadCalls, is_held

pytestmark = pytest.mark.needs("loads")

MINE, THEIRS, NEXT = "mine-token", "their-token", "next-token"

counts_on_wake_ups = pytest.mark.exact("counts on wake-ups")


class Killed(BaseException):
    """Ends a thread or task at any point."""


def start_waiting(load: LoadCalls, caller: Caller, token: str, wait: float = 2 * PATIENCE) -> Future[Any]:
    """Let a caller wait for the load, longer than the test does: its last attempt would succeed without a wake-up."""
    waiting = start_queueing(load, caller, load.claim, token, wait=wait)
    eventually(lambda: waiting.done() or all_registered(load))
    return waiting


# The end of a load


@pytest.mark.usefixtures("no_polling")
@counts_on_wake_ups
def test_all_waiters_are_woken_by_each_end_of_a_load(any_load: LoadCalls, face: Face, alice: Caller) -> None:
    """[S24] Without polling. All are woken at once, since a value has no holder."""
    stored = FRESH if any_load.same_server else CLAIMED
    for end, expected in {
        "store": stored,
        "give_up": CLAIMED,
        "fail": FAILED,
        "invalidate": CLAIMED,
        "unblock": CLAIMED,
        "take": stored,
    }.items():
        load = any_load.sibling(end)
        alice(load.block if end == "unblock" else load.claim, MINE)
        callers = [face.caller() for _ in range(1 if expected == CLAIMED else 3)]
        waiting = [start_waiting(load, caller, f"token-{number}") for number, caller in enumerate(callers)]
        with face.commands() as commands:
            if end == "take":
                alice(load.claim, NEXT, override=True)
                alice(load.store, NEXT)
            elif end == "fail":
                alice(load.give_up, MINE, MINUTE, "why")
            else:
                alice(getattr(load, end), *(() if end == "invalidate" else (MINE,)))
            assert [future.result(PATIENCE).verdict for future in waiting] == [expected] * len(waiting), end
        assert commands.count("load/claim") == len(waiting) + (end == "take"), end


def test_a_wait_that_ends_is_busy(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S10] [S12] A caller without a claim must not store."""
    alice(any_load.claim, MINE)
    claim = bob(any_load.claim, THEIRS, wait=0.1)
    assert claim.verdict == BUSY
    assert not bob(any_load.store, THEIRS)
    assert alice(any_load.store, MINE)


def test_a_waiter_claims_after_the_lease_of_a_dead_loader_or_writer(
    any_load: LoadCalls, alice: Caller, bob: Caller
) -> None:
    """[S11] [S36] The end of the lease frees the value."""
    alice(any_load.claim, MINE, lease=0.2)
    assert bob(any_load.claim, THEIRS, wait=10).verdict == CLAIMED
    alice(any_load.block, MINE, lease=200)
    assert bob(any_load.claim, THEIRS, wait=10).verdict == CLAIMED


# Waiters that leave


@pytest.mark.usefixtures("no_polling")
@counts_on_wake_ups
def test_a_waiter_behind_one_that_gives_up_is_woken(load: LoadCalls, face: Face, alice: Caller, bob: Caller) -> None:
    """[S26] The first waiter was registered for the whole process."""
    alice(load.claim, MINE)
    first = start_waiting(load, bob, THEIRS, wait=0.3)
    second = start_waiting(load, face.caller(), NEXT)
    assert first.result(PATIENCE).verdict == BUSY
    eventually(lambda: all_registered(load))
    alice(load.store, MINE, b"value")
    assert second.result(PATIENCE).verdict == FRESH


@pytest.mark.usefixtures("no_polling")
@counts_on_wake_ups
def test_a_waiter_that_is_killed_leaves_no_claim(face: Face, load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S21] The waiter behind it is woken."""
    alice(load.claim, MINE)
    first = start_waiting(load, bob, THEIRS)
    second = start_waiting(load, face.caller(), NEXT)
    strike_head(load, Killed("asleep"))
    with pytest.raises(Killed):
        first.result(PATIENCE)
    alice(load.give_up, MINE)
    assert second.result(PATIENCE).verdict == CLAIMED
    assert alice(load.store, NEXT)
    assert alice(load.claim, MINE, fresh_above=-1).verdict == CLAIMED


# Renewal


@pytest.mark.usefixtures("frequent_renewal")
def test_a_renewed_claim_outlives_its_lease(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S9] A load may take longer than the lease."""
    claim = alice(any_load.claim, MINE, lease=9, renew_for=60.0)

    def lease_left() -> float:
        theirs = bob(any_load.claim, THEIRS)
        assert theirs.verdict == BUSY
        return theirs.lease_left

    for _ in range(2):
        wait_until_prolonged(lease_left)
    assert is_held(claim)
    assert alice(any_load.store, MINE, b"late", MINUTE, claim.hold)


@on_memory
def test_renewal_ends_after_max_hold(
    any_load: LoadCalls, alice: Caller, bob: Caller, manual_clock: ManualClock
) -> None:
    """[S11] For example of a hanging loader."""
    claim = alice(any_load.claim, MINE, lease=30, renew_for=60)
    manual_clock.advance(59)
    assert bob(any_load.claim, THEIRS).verdict == BUSY
    assert is_held(claim)
    manual_clock.advance(40)
    assert bob(any_load.claim, THEIRS).verdict == CLAIMED


# Lost replies


@pytest.mark.exact("loses one reply by itself")
def test_an_unanswered_claim_or_store_ends_the_claim(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S11] [S9] Its caller got an error, so it neither loads nor ends the claim, whether or not the value was
    stored."""
    for call in (load.claim, load.store):
        if call == load.store:
            alice(load.claim, MINE)
        with lost_replies(), pytest.raises(LockBackendError):
            alice(call, MINE)
        engine().wait_until_idle(10)
        assert bob(load.claim, THEIRS, fresh_above=-1).verdict == CLAIMED
        bob(load.give_up, THEIRS)

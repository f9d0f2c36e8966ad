"""The programs of a holder, stepped by hand: release, extension, inspection, force."""

from __future__ import annotations

import asyncio

import pytest

from django_redis_locks import Holder, LockBackendError, LockLost
from django_redis_locks.core import events
from django_redis_locks.core.hold import Hold, State, validity
from tests.unit.primitives.handover_fixtures import END, a_hold, given_back, losses
from tests.unit.primitives.stepping import WORLD, a_lock, lost_answer, play, release

OFFER = "hand over A = no; "
"""Within the lease the lock is offered to those who wait here, and none does."""
CLEARED = "; unwatch A; sweep A for 10; freed"


@pytest.fixture
def hold() -> Hold:
    return a_hold()


@pytest.mark.parametrize("renewed", [False, True], ids=["fixed", "renewed"])
def test_release_is_one_command_and_stops_the_renewal(hold: Hold, heard: list[events.Event], renewed: bool) -> None:
    """[L8] [H6] No renewal from before the first byte is sent; those who came meanwhile are woken after the answer."""
    hold.renew_until = 160.0 * renewed
    steps = "unwatch A; " * renewed + f"105: {OFFER}free A = 1; freed"
    assert release(a_lock(), given_back(hold), steps) is True
    assert hold.state is State.GONE
    assert heard == []


@pytest.mark.parametrize(
    ("joined", "end"),
    [(False, "1"), (True, "1; freed"), (False, "2; freed, another woken")],
    ids=["nobody", "somebody since", "another process"],
)
def test_release_without_local_waiters_offers_no_handover(
    hold: Hold, monkeypatch: pytest.MonkeyPatch, joined: bool, end: str
) -> None:
    """[H6] But a waiter that came while the release was on its way may have heard that the lock is busy; and another
    process that was notified has the right to go first."""
    here = iter([False, joined])
    monkeypatch.setattr(WORLD, "queued", lambda place: next(here))
    assert release(a_lock(), given_back(hold), f"105: free A = {end}") is True


def test_release_after_an_unanswered_acquire_leaves_cleanup(hold: Hold) -> None:
    """[H2] [H3] A late copy of the acquire may come after the release: the token is swept, and isn't handed over."""
    hold.unanswered = True
    assert release(a_lock(), given_back(hold), "105: free A = 1; freed; sweep A for 10") is True


@pytest.mark.parametrize(
    ("now", "why"), [(105.0, "taken"), (END - 0.001, "taken"), (END, "expired"), (200.0, "expired")], ids=str
)
def test_release_of_a_lock_taken_by_others_raises_LockLost(
    hold: Hold, heard: list[events.Event], now: float, why: str
) -> None:
    """[L14] Without a lost answer it can only mean that the lease ended, or that the lock was taken away."""
    with pytest.raises(LockLost, match=why) as caught:
        release(a_lock(), given_back(hold), f"{now!r}: {OFFER * (now < END)}free A = 0; freed")
    assert (caught.value.key, caught.value.name, caught.value.alias) == ("order:42", "order", "default")
    assert losses(heard) == [why]
    assert hold.state is State.GONE


def test_release_after_a_lost_answer_says_whether_it_is_confirmed(heard: list[events.Event]) -> None:
    """[H15] [L14] "Not mine" is what success looks like the second time; it isn't confirmed. Sent after the lease it was
    too late to be the reason."""
    again = "free A = stale; free A = {}; freed; sweep A for 10"
    for answer in (0, 1):
        hold = given_back(a_hold())
        assert release(a_lock(), hold, f"105: {OFFER}{again.format(answer)}") is bool(answer)
        assert hold.state is State.GONE
    assert heard == []
    with pytest.raises(LockLost, match="expired"):
        release(a_lock(), given_back(a_hold()), f"{END!r}: {again.format(0)}")


def fail_to_release(hold: Hold, failure: LockBackendError) -> None:
    with pytest.raises(LockBackendError) as caught:
        release(a_lock(), given_back(hold), f"105: {OFFER}free A = failure{CLEARED}", failure=failure)
    assert caught.value is failure


@pytest.mark.parametrize("failure", [lost_answer(), LockBackendError("can't connect", passing=True)], ids=str)
def test_release_with_the_store_down_raises_and_keeps_the_state(hold: Hold, failure: LockBackendError) -> None:
    """[L15] [F12] The release goes to the janitor, the caller gets the error, and may try again."""
    fail_to_release(hold, failure)
    assert (failure.key, failure.name, failure.alias) == ("order:42", "order", "default")
    assert hold.state is State.RELEASING


@pytest.mark.parametrize("answer", [1, 0])
def test_second_release_accepts_what_cleanup_did(hold: Hold, heard: list[events.Event], answer: int) -> None:
    """[L15] [H15] "Not mine" is then the janitor's success, and no loss."""
    grant = next(iter(hold.inside))
    fail_to_release(hold, LockBackendError("can't connect", passing=True))
    assert hold.leave(grant)
    assert release(a_lock(), hold, f"106: free A = {answer}; freed") is bool(answer)
    assert heard == []


def test_release_with_the_store_down_until_the_lease_ends_raises_LockLost(hold: Hold) -> None:
    """[L2] [L3] The local deadline decides, although the store can't be asked."""
    failure = lost_answer()
    with pytest.raises(LockLost, match="expired") as caught:
        release(a_lock(), given_back(hold), f"109: {OFFER}free A = failure @111{CLEARED}", failure=failure)
    assert caught.value.__cause__ is failure


def test_release_interrupted_goes_on_in_the_background() -> None:
    """[L16] [X2] The janitor has the token, and the error passes."""
    for error in (KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(type(error)) as caught:
            release(a_lock(), given_back(a_hold()), f"105: {OFFER}free A = error{CLEARED}", error=error)
        assert caught.value is error


# Extension


def test_extend_never_shortens_the_lease() -> None:
    """[F10] [H2] The deadline counts from the sending, and never moves back."""
    for lease, deadline in ((60_000, 105.0 + validity(60_000)), (1_000, END), (1, END)):
        hold = a_hold()
        play(a_lock().extending(hold, lease), f"105: renew A {lease} = yes @105.5")
        assert hold.deadline == deadline, lease


def test_extend_of_a_lost_lock_raises_LockLost(hold: Hold, heard: list[events.Event]) -> None:
    """[L3] It is reported once, with the reason."""
    with pytest.raises(LockLost, match="taken"):
        play(a_lock().extending(hold, 60_000), "105: renew A 60000 = no")
    assert losses(heard) == ["taken"]
    assert not hold.live


def test_extend_that_fails_changes_nothing(hold: Hold) -> None:
    """The lease is as it was, as far as is known; a longer one than known does no harm."""
    with pytest.raises(LockBackendError):
        play(a_lock().extending(hold, 60_000), "105: renew A 60000 = lost")
    assert (hold.deadline, hold.state) == (END, State.HELD)


# Looking, and force


def test_looking_at_the_holder_is_one_command() -> None:
    """What the store answers is what is returned."""
    holder = Holder(7, 1.0, 2.0)
    assert play(a_lock().inspecting(), "100: inspect = holder", holder=holder) is holder


def test_force_release_wakes_local_waiters_if_it_freed_the_lock() -> None:
    """[L24] [H3] All of them, also if another process was notified."""
    for fence in (None, 7):
        for answer in (0, 1, 2):
            steps = f"100: force {fence or 'any'} = {answer}" + "; freed" * bool(answer)
            assert play(a_lock().forcing(fence), steps) is bool(answer)

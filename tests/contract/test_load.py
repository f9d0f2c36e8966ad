"""The load of a value: one loader at a time, whose claim lasts as long as it works, and those who wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.core import clock
from django_redis_locks.core.effects import Command
from django_redis_locks.core.hold import State
from django_redis_locks.core.owners import mint_token
from django_redis_locks.primitives.load import (
    BUSY,
    EXTRA,
    FAILED,
    FRESH,
    OURS,
)
from tests.contract.desk import MINE, MINUTE, NEXT, SOON, THEIRS, Desk
from tests.contract.matrix import PATIENCE, Caller, Face, eventually


class Killed(BaseException):
    """What ends a thread or task in the middle of everything."""


# Claims


def test_the_first_claim_is_ours(either: Desk, alice: Caller) -> None:
    claim = alice(either.claim, MINE)
    assert (claim.verdict, claim.value_left, claim.value) == (OURS, -2, None)
    assert 50 < claim.lease_left <= 60


def test_the_second_one_is_told_how_long_the_first_may_take(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S32] In milliseconds of the store's clock."""
    alice(either.claim, MINE)
    claim = bob(either.claim, THEIRS)
    assert claim.verdict == BUSY
    assert 50 < claim.lease_left <= 60


def test_a_repeated_claim_finds_its_own(either: Desk, alice: Caller, bob: Caller) -> None:
    """Whoever wasn't answered asks again."""
    assert alice(either.claim, MINE).verdict == alice(either.claim, MINE).verdict == OURS
    assert bob(either.claim, THEIRS).verdict == BUSY
    assert alice(either.store, MINE)


def test_a_claim_sees_the_value_in_the_same_step(desk: Desk, alice: Caller, bob: Caller) -> None:
    """There is nothing between the look and the claim for somebody else's store to slip into."""
    alice(desk.claim, MINE)
    assert alice(desk.store, MINE, b"value")
    claim = bob(desk.claim, THEIRS)
    assert (claim.verdict, claim.value) == (FRESH, b"value")
    assert 50_000 < claim.value_left <= MINUTE
    assert alice(desk.claim, NEXT, fresh_above=-1).verdict == OURS  # so nobody had it


def test_a_value_that_lives_for_ever_is_fresh(desk: Desk, alice: Caller) -> None:
    alice(desk.claim, MINE)
    alice(desk.store, MINE, b"value", -1)
    claim = alice(desk.claim, THEIRS, fresh_above=10**12)
    assert (claim.verdict, claim.value_left) == (FRESH, -1)


def test_a_stale_value_comes_with_the_claim(desk: Desk, alice: Caller, bob: Caller) -> None:
    """Whoever must not wait is served it."""
    alice(desk.claim, MINE)
    alice(desk.store, MINE, b"value")
    ours = alice(desk.claim, MINE, fresh_above=MINUTE)
    theirs = bob(desk.claim, THEIRS, fresh_above=MINUTE)
    assert (ours.verdict, ours.value) == (OURS, b"value")
    assert (theirs.verdict, theirs.value) == (BUSY, b"value")


def test_a_number_is_stored_as_caches_store_it(desk: Desk, alice: Caller) -> None:
    """A cache's ``incr`` must go on working."""
    alice(desk.claim, MINE)
    alice(desk.store, MINE, 7)
    assert alice(desk.read)[1] == b"7"


def test_a_claim_may_be_taken(either: Desk, alice: Caller, bob: Caller) -> None:
    """What the first one brings may be older than what the second one knows to have changed."""
    alice(either.claim, MINE)
    assert bob(either.claim, THEIRS, take=True).verdict == OURS
    assert not alice(either.store, MINE, b"old")
    assert bob(either.store, THEIRS, b"new")


def test_a_fresh_value_is_no_reason_not_to_take_it(desk: Desk, alice: Caller) -> None:
    alice(desk.claim, MINE)
    alice(desk.store, MINE)
    assert alice(desk.claim, THEIRS, take=True).verdict == OURS


def test_one_more_may_load_for_each_lease(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S12] nginx's lock_age: of those whose wait was too short one loads, without storing."""
    alice(either.claim, MINE)
    assert bob(either.claim, THEIRS, extra=MINUTE).verdict == EXTRA
    assert bob(either.claim, THEIRS, extra=MINUTE).verdict == BUSY
    assert bob(either.claim, NEXT, extra=MINUTE).verdict == BUSY
    assert not bob(either.store, THEIRS, b"extra")
    assert alice(either.store, MINE)


def test_another_one_later(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S12]"""
    alice(either.claim, MINE)
    assert bob(either.claim, THEIRS, extra=50).verdict == EXTRA
    eventually(lambda: bob(either.claim, NEXT, extra=50).verdict == EXTRA)


def test_who_may_load_beside_the_first_one_doesnt_prolong_its_lease(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S11] A dead loader's lease ends when it would have."""
    for _ in range(5):  # a machine that stands still may end the first one's lease too soon
        alice(either.claim, MINE, lease=0.2)
        verdict = bob(either.claim, THEIRS, extra=0).verdict
        if verdict != OURS:
            break
        bob(either.give_up, THEIRS)
    assert verdict == EXTRA
    eventually(lambda: bob(either.claim, NEXT).verdict == OURS)


# Stores


def test_what_is_stored_lives_so_long(desk: Desk, alice: Caller) -> None:
    alice(desk.claim, MINE)
    assert alice(desk.store, MINE, b"value")
    left, value = alice(desk.read)
    assert value == b"value"
    assert 50_000 < left <= MINUTE


def test_a_store_ends_the_claim(either: Desk, alice: Caller, bob: Caller) -> None:
    alice(either.claim, MINE)
    assert alice(either.store, MINE, keep=0)
    assert bob(either.claim, THEIRS).verdict == OURS


def test_without_a_claim_nothing_is_stored(desk: Desk, alice: Caller, bob: Caller) -> None:
    """[S10] Only with one's own token."""
    assert not alice(desk.store, MINE, b"never claimed")
    bob(desk.claim, THEIRS)
    assert not alice(desk.store, MINE, b"somebody else's")
    assert alice(desk.read) == (-2, None)
    assert bob(desk.store, THEIRS)


def test_a_claim_whose_lease_is_over_stores_nothing(desk: Desk, alice: Caller) -> None:
    """[S9] However long its loader took."""
    alice(desk.claim, MINE, lease=SOON)
    eventually(lambda: not alice(desk.check, MINE, 1)[0])
    assert not alice(desk.store, MINE)
    assert alice(desk.read) == (-2, None)


def test_the_next_one_claims_when_the_lease_is_over(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S11] [S36] A loader that died holds up nobody for longer."""
    alice(either.claim, MINE, lease=0.2)
    claim = bob(either.claim, THEIRS, wait=10)
    assert claim.verdict == OURS


@pytest.mark.usefixtures("often")
def test_a_claim_lasts_while_it_is_renewed(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S9] A load may take longer than its lease."""
    claim = alice(either.claim, MINE, lease=9, renew_for=60.0)

    def ends() -> float:
        now = clock.now()
        theirs = bob(either.claim, THEIRS)
        assert theirs.verdict == BUSY
        return now + theirs.lease_left

    for _ in range(2):
        before = ends()
        eventually(lambda: ends() > before + 0.2)  # noqa: B023 - called here
    assert claim.hold.state is State.HELD
    assert alice(either.store, MINE, b"late", MINUTE, claim.hold)


def test_an_interrupted_loader_is_not_renewed_for_ever(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S11] ``max_hold``: a loader that hangs."""
    claim = alice(either.claim, MINE, lease=0.2, renew_for=0.3)
    assert bob(either.claim, THEIRS, wait=10).verdict == OURS
    assert claim.hold is not None


# Failures


def test_a_load_that_is_given_up_is_the_next_ones(either: Desk, alice: Caller, bob: Caller) -> None:
    alice(either.claim, MINE)
    assert alice(either.give_up, MINE)
    assert bob(either.claim, THEIRS).verdict == OURS
    assert not alice(either.give_up, MINE)
    assert bob(either.store, THEIRS)


def test_why_a_load_failed_is_told_for_a_while(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S13] Those who wait needn't try it one after the other."""
    alice(either.claim, MINE)
    assert alice(either.give_up, MINE, MINUTE, "OSError: no rates ünd so on")
    claim = bob(either.claim, THEIRS)
    assert (claim.verdict, claim.said) == (FAILED, "OSError: no rates ünd so on")
    assert 0 < claim.lease_left <= 60
    assert alice(either.claim, MINE, take=True).verdict == OURS
    assert alice(either.give_up, MINE, 100, "and not yet")
    eventually(lambda: bob(either.claim, THEIRS).verdict == OURS)


@pytest.mark.parametrize(
    "why", ["", " ", "a" * 2000, "\n\x00", "\ud800"], ids=["nothing", "blank", "long", "odd", "bad"]
)
def test_anything_may_be_the_reason(either: Desk, alice: Caller, bob: Caller, why: str) -> None:
    alice(either.claim, MINE)
    assert alice(either.give_up, MINE, MINUTE, why)
    claim = bob(either.claim, THEIRS)
    assert claim.verdict == FAILED
    assert claim.said == why.encode(errors="replace").decode()[:500]


def test_only_ones_own_load_can_fail(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S10]"""
    alice(either.claim, MINE)
    assert not bob(either.give_up, THEIRS, MINUTE, "not mine")
    assert alice(either.store, MINE)


def test_an_invalidation_forgets_a_failure(either: Desk, alice: Caller, bob: Caller) -> None:
    alice(either.claim, MINE)
    alice(either.give_up, MINE, MINUTE, "why")
    bob(either.fence)
    assert bob(either.claim, THEIRS).verdict == OURS


def test_who_takes_a_load_doesnt_mind_that_it_failed(either: Desk, alice: Caller, bob: Caller) -> None:
    alice(either.claim, MINE)
    alice(either.give_up, MINE, MINUTE, "why")
    assert bob(either.claim, THEIRS, take=True).verdict == OURS


# Those who wait


ENDS = ["store", "give_up", "fail", "fence", "unblock", "take"]


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
@pytest.mark.parametrize("end", ENDS)
def test_who_waits_is_told_of_the_end(either: Desk, face: Face, alice: Caller, bob: Caller, end: str) -> None:
    """[S24] Nobody polls."""
    _begin(either, alice, end)
    waiting = either.start_waiting(bob, token=THEIRS)
    with face.commands() as commands:
        _end(either, alice, end)
        verdict = waiting.result(PATIENCE).verdict
    fused = bool(either.load.keys.value)
    expected = {"fail": FAILED, "store": FRESH if fused else OURS, "take": FRESH if fused else OURS}
    assert verdict == expected.get(end, OURS)
    assert commands.count("load/claim") == 1 + (end == "take")


def _begin(desk: Desk, caller: Caller, end: str) -> None:
    if end == "unblock":
        caller(desk.block, MINE)
    else:
        caller(desk.claim, MINE)


def _end(desk: Desk, caller: Caller, end: str) -> None:
    if end == "take":
        caller(desk.claim, NEXT, take=True)
        caller(desk.store, NEXT)
    elif end == "fail":
        caller(desk.give_up, MINE, MINUTE, "why")
    else:
        caller(getattr(desk, end), *(() if end == "fence" else (MINE,)))


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_all_who_wait_for_a_load_are_told(desk: Desk, face: Face, alice: Caller) -> None:
    """[S24] They needn't wake one another: nobody holds the value."""
    alice(desk.claim, MINE)
    waiting = [desk.start_waiting(face.caller(), token=mint_token()) for _ in range(4)]
    alice(desk.store, MINE, b"value")
    claims = [future.result(PATIENCE) for future in waiting]
    assert {(claim.verdict, claim.value) for claim in claims} == {(FRESH, b"value")}


def test_a_wait_ends(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S10] [S12] It isn't ours then."""
    alice(either.claim, MINE)
    claim = bob(either.claim, THEIRS, wait=0.1)
    assert claim.verdict == BUSY
    assert not bob(either.store, THEIRS)
    assert alice(either.store, MINE)


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_who_gives_up_takes_nobodys_wake_up_with_him(desk: Desk, face: Face, alice: Caller, bob: Caller) -> None:
    """[S26] He was the one in line for all of his process."""
    alice(desk.claim, MINE)
    first = desk.start_waiting(bob, token=THEIRS, wait=0.3)
    second = desk.start_waiting(face.caller(), token=NEXT)
    assert first.result(PATIENCE).verdict == BUSY
    eventually(desk.in_line)
    alice(desk.store, MINE, b"value")
    assert second.result(PATIENCE).verdict == FRESH


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_a_waiter_who_is_killed(face: Face, desk: Desk, alice: Caller, bob: Caller) -> None:
    """[S21] Neither does he keep others from being woken, nor is anything left that he claims."""
    alice(desk.claim, MINE)
    first = desk.start_waiting(bob, token=THEIRS)
    second = desk.start_waiting(face.caller(), token=NEXT)
    (queue,) = desk.engine._queues._queues[desk.load.place].values()
    gate = queue.seats[0].gate
    kill = Killed("in his sleep")

    def strike(seconds: float) -> None:
        raise kill

    async def astrike(seconds: float) -> None:
        raise kill

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "wait", astrike if face.is_async else strike)
        gate.open()  # he looks whether it is his turn, and sleeps on
        with pytest.raises(Killed):
            first.result(PATIENCE)
    alice(desk.give_up, MINE)
    assert second.result(PATIENCE).verdict == OURS
    assert alice(desk.store, NEXT)
    assert alice(desk.claim, MINE, fresh_above=-1).verdict == OURS


@pytest.mark.exact("it is about one lost answer of its own")
def test_a_claim_that_nobody_was_told_of_is_given_up(
    desk: Desk, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S11] Its caller has raised, so he will neither load nor end it."""
    _lose_answers(desk, monkeypatch)
    with pytest.raises(LockBackendError):
        alice(desk.claim, MINE)
    monkeypatch.undo()
    desk.engine.settle(10)
    assert bob(desk.claim, THEIRS).verdict == OURS


@pytest.mark.exact("it is about one lost answer of its own")
def test_a_store_that_nobody_was_told_of_ends_the_claim(
    desk: Desk, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S9] Whether or not the value was stored."""
    alice(desk.claim, MINE)
    _lose_answers(desk, monkeypatch)
    with pytest.raises(LockBackendError):
        alice(desk.store, MINE)
    monkeypatch.undo()
    desk.engine.settle(10)
    assert bob(desk.claim, THEIRS, fresh_above=-1).verdict == OURS


def _lose_answers(desk: Desk, patch: pytest.MonkeyPatch) -> None:
    """Whatever callers send is carried out, and they never hear of it."""
    ask, aask = desk.engine.handlers[Command], desk.engine.ahandlers[Command]

    def lose(command: Command[Any]) -> Any:
        ask(command)
        raise LockBackendError("no answer", unanswered=True, passing=True)

    async def alose(command: Command[Any]) -> Any:
        await aask(command)
        raise LockBackendError("no answer", unanswered=True, passing=True)

    patch.setitem(desk.engine.handlers, Command, lose)
    patch.setitem(desk.engine.ahandlers, Command, alose)

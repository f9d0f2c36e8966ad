"""The load of a value: one loader at a time, whose claim is a lease, and what it brings is stored only while it holds."""

from __future__ import annotations

import pytest

from tests.contract.matrix import Caller, eventually, threads_only
from tests.probes.load import BUSY, EXTRA, FAILED, FRESH, MINUTE, OURS, LoadCalls

MINE, THEIRS, NEXT = "mine-token", "their-token", "next-token"

pytestmark = threads_only  # test_load_waiting.py meets both faces

# Claims


def test_the_first_claim_is_ours(any_load: LoadCalls, alice: Caller) -> None:
    claim = alice(any_load.claim, MINE)
    assert (claim.verdict, claim.value_left, claim.value) == (OURS, -2, None)
    assert 50 < claim.lease_left <= 60


def test_a_second_claim_is_busy_until_the_lease_ends(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S32] On the store's clock."""
    alice(any_load.claim, MINE)
    claim = bob(any_load.claim, THEIRS)
    assert claim.verdict == BUSY
    assert 50 < claim.lease_left <= 60


def test_a_repeated_claim_is_ours(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """As after a lost reply."""
    assert alice(any_load.claim, MINE).verdict == alice(any_load.claim, MINE).verdict == OURS
    assert bob(any_load.claim, THEIRS).verdict == BUSY
    assert alice(any_load.store, MINE)


def test_a_claim_of_a_stored_value_returns_it(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """In the same step: nothing can be stored between the read and the claim."""
    alice(load.claim, MINE)
    assert alice(load.store, MINE, b"value")
    claim = bob(load.claim, THEIRS)
    assert (claim.verdict, claim.value) == (FRESH, b"value")
    assert 50_000 < claim.value_left <= MINUTE
    assert alice(load.claim, NEXT, fresh_above=-1).verdict == OURS  # it was free


def test_a_value_without_expiry_is_fresh(load: LoadCalls, alice: Caller) -> None:
    alice(load.claim, MINE)
    alice(load.store, MINE, b"value", -1)
    claim = alice(load.claim, THEIRS, fresh_above=10**12)
    assert (claim.verdict, claim.value_left) == (FRESH, -1)


def test_a_claim_returns_the_stale_value(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """For callers that must not wait."""
    alice(load.claim, MINE)
    alice(load.store, MINE, b"value")
    ours = alice(load.claim, MINE, fresh_above=MINUTE)
    theirs = bob(load.claim, THEIRS, fresh_above=MINUTE)
    assert (ours.verdict, ours.value) == (OURS, b"value")
    assert (theirs.verdict, theirs.value) == (BUSY, b"value")


def test_a_claim_with_take_voids_the_first_one(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """Its value may be older than a change that the second loader knows of."""
    alice(any_load.claim, MINE)
    assert bob(any_load.claim, THEIRS, take=True).verdict == OURS
    assert not alice(any_load.store, MINE, b"old")
    assert bob(any_load.store, THEIRS, b"new")


def test_a_claim_with_take_ignores_a_fresh_value(load: LoadCalls, alice: Caller) -> None:
    alice(load.claim, MINE)
    alice(load.store, MINE)
    assert alice(load.claim, THEIRS, take=True).verdict == OURS


def test_one_extra_loader_per_lease_loads_without_storing(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S12] nginx's proxy_cache_lock_age."""
    alice(any_load.claim, MINE)
    assert bob(any_load.claim, THEIRS, extra=MINUTE).verdict == EXTRA
    assert bob(any_load.claim, THEIRS, extra=MINUTE).verdict == BUSY
    assert bob(any_load.claim, NEXT, extra=MINUTE).verdict == BUSY
    assert not bob(any_load.store, THEIRS, b"extra")
    assert alice(any_load.store, MINE)


def test_another_extra_loader_is_let_in_later(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S12]"""
    alice(any_load.claim, MINE)
    assert bob(any_load.claim, THEIRS, extra=50).verdict == EXTRA
    eventually(lambda: bob(any_load.claim, NEXT, extra=50).verdict == EXTRA)


def test_an_extra_loader_does_not_prolong_the_lease(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S11] A dead loader's lease ends when it would have."""
    for _ in range(5):  # a machine that stands still may end the first lease too soon
        alice(any_load.claim, MINE, lease=0.2)
        verdict = bob(any_load.claim, THEIRS, extra=0).verdict
        if verdict != OURS:
            break
        bob(any_load.give_up, THEIRS)
    assert verdict == EXTRA
    eventually(lambda: bob(any_load.claim, NEXT).verdict == OURS)


# Stores


def test_a_stored_value_has_its_lifetime(load: LoadCalls, alice: Caller) -> None:
    alice(load.claim, MINE)
    assert alice(load.store, MINE, b"value")
    left, value = alice(load.read)
    assert value == b"value"
    assert 50_000 < left <= MINUTE


def test_a_number_is_stored_as_its_digits(load: LoadCalls, alice: Caller) -> None:
    """So that a cache's ``incr`` works."""
    alice(load.claim, MINE)
    alice(load.store, MINE, 7)
    assert alice(load.read)[1] == b"7"


def test_a_store_ends_the_claim(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    alice(any_load.claim, MINE)
    assert alice(any_load.store, MINE, keep=0)
    assert bob(any_load.claim, THEIRS).verdict == OURS


def test_a_store_without_a_claim_is_refused(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S10] Its token must be that of the claim."""
    assert not alice(load.store, MINE, b"never claimed")
    bob(load.claim, THEIRS)
    assert not alice(load.store, MINE, b"another caller's")
    assert alice(load.read) == (-2, None)
    assert bob(load.store, THEIRS)


def test_a_store_after_the_lease_is_refused(load: LoadCalls, alice: Caller) -> None:
    """[S9] However long its loader took."""
    alice(load.claim, MINE, lease=0.05)
    eventually(lambda: not alice(load.check, MINE, 1)[0])
    assert not alice(load.store, MINE)
    assert alice(load.read) == (-2, None)


# Failures


def test_a_load_that_is_given_up_is_free(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    alice(any_load.claim, MINE)
    assert alice(any_load.give_up, MINE)
    assert bob(any_load.claim, THEIRS).verdict == OURS
    assert not alice(any_load.give_up, MINE)
    assert bob(any_load.store, THEIRS)


def test_a_failure_is_returned_for_its_time(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S13] Waiters needn't repeat it one after the other."""
    alice(any_load.claim, MINE)
    assert alice(any_load.give_up, MINE, MINUTE, "OSError: no rates ünd so on")
    claim = bob(any_load.claim, THEIRS)
    assert (claim.verdict, claim.said) == (FAILED, "OSError: no rates ünd so on")
    assert 0 < claim.lease_left <= 60
    assert alice(any_load.claim, MINE, take=True).verdict == OURS
    assert alice(any_load.give_up, MINE, 100, "and not yet")
    eventually(lambda: bob(any_load.claim, THEIRS).verdict == OURS)


def test_a_failure_may_have_any_reason(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """Cut to 500 letters."""
    for why in ("", " ", "a" * 2000, "\n\x00", "\ud800"):
        alice(load.claim, MINE, take=True)
        assert alice(load.give_up, MINE, MINUTE, why), repr(why)
        claim = bob(load.claim, THEIRS)
        assert claim.verdict == FAILED
        assert claim.said == why.encode(errors="replace").decode()[:500]


def test_another_callers_load_is_neither_renewed_nor_given_up(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S10]"""
    alice(any_load.claim, MINE)
    assert bob(any_load.check, THEIRS) == (False, 0)
    assert not bob(any_load.give_up, THEIRS, MINUTE, "not mine")
    assert alice(any_load.store, MINE)


@pytest.mark.parametrize("end", ["invalidate", "clear", "take"])
def test_a_failure_is_forgotten(any_load: LoadCalls, alice: Caller, bob: Caller, end: str) -> None:
    """By an invalidation, by a new generation, and by a claim with take."""
    alice(any_load.claim, MINE)
    alice(any_load.give_up, MINE, MINUTE, "why")
    if end != "take":
        bob(getattr(any_load, end))
    assert bob(any_load.claim, THEIRS, take=end == "take").verdict == OURS

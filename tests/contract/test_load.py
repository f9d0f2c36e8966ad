"""The load of a value: one loader at a time. Its claim is a lease; the value is stored only while the claim is held."""

from __future__ import annotations

import pytest

from tests.contract.matrix import Caller, eventually, threads_only
from tests.probes.load import BUSY, CLAIMED, FAILED, FRESH, MINUTE, UNCOORDINATED, LoadCalls

MINE, THEIRS, NEXT = "mine-token", "their-token", "next-token"

pytestmark = [pytest.mark.needs("loads"), threads_only]  # test_load_waiting.py uses both APIs

# Claims


def test_claim_is_held_and_busy_for_others_until_its_lease_ends(
    any_load: LoadCalls, alice: Caller, bob: Caller
) -> None:
    """[S32] By the store's clock. A repeated claim succeeds, as after a lost reply."""
    for _ in range(2):
        claim = alice(any_load.claim, MINE)
        assert (claim.verdict, claim.value_left, claim.value) == (CLAIMED, -2, None)
        assert 50 < claim.lease_left <= 60
    claim = bob(any_load.claim, THEIRS)
    assert claim.verdict == BUSY
    assert 50 < claim.lease_left <= 60
    assert alice(any_load.store, MINE)


def test_a_claim_returns_the_stored_value(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """In one step: nothing can be stored between the read and the claim. Also a stale value, for callers that don't
    wait."""
    alice(load.claim, MINE)
    assert alice(load.store, MINE, b"value")
    claim = bob(load.claim, THEIRS)
    assert (claim.verdict, claim.value) == (FRESH, b"value")
    assert 50_000 < claim.value_left <= MINUTE
    ours = alice(load.claim, MINE, fresh_above=MINUTE)
    theirs = bob(load.claim, THEIRS, fresh_above=MINUTE)
    assert (ours.verdict, ours.value) == (CLAIMED, b"value")
    assert (theirs.verdict, theirs.value) == (BUSY, b"value")
    alice(load.store, MINE, b"value", -1)
    claim = alice(load.claim, THEIRS, fresh_above=10**12)
    assert (claim.verdict, claim.value_left) == (FRESH, -1)


def test_a_claim_with_take_voids_the_first_one(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """The first loader may have read older data than the second. A fresh value is ignored, too."""
    alice(any_load.claim, MINE)
    assert bob(any_load.claim, THEIRS, override=True).verdict == CLAIMED
    assert not alice(any_load.store, MINE, b"old")
    assert bob(any_load.store, THEIRS, b"new")
    assert alice(any_load.claim, MINE, override=True).verdict == CLAIMED


def test_one_extra_loader_at_a_time_loads_without_storing(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S12] Like nginx's proxy_cache_lock_age."""
    alice(any_load.claim, MINE)
    assert bob(any_load.claim, THEIRS, extra_interval=MINUTE).verdict == UNCOORDINATED
    assert bob(any_load.claim, THEIRS, extra_interval=MINUTE).verdict == BUSY
    assert bob(any_load.claim, NEXT, extra_interval=MINUTE).verdict == BUSY
    assert not bob(any_load.store, THEIRS, b"extra")
    assert alice(any_load.store, MINE)
    other = any_load.sibling("later")
    alice(other.claim, MINE)
    assert bob(other.claim, THEIRS, extra_interval=50).verdict == UNCOORDINATED
    eventually(lambda: bob(other.claim, NEXT, extra_interval=50).verdict == UNCOORDINATED)


def test_an_extra_loader_does_not_extend_the_lease(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S11] The lease of a dead loader ends at its original time."""
    for _ in range(5):  # on a machine that pauses, the first lease may end too soon
        alice(any_load.claim, MINE, lease=0.2)
        verdict = bob(any_load.claim, THEIRS, extra_interval=0).verdict
        if verdict != CLAIMED:
            break
        bob(any_load.give_up, THEIRS)
    assert verdict == UNCOORDINATED
    eventually(lambda: bob(any_load.claim, NEXT).verdict == CLAIMED)


# Stores


def test_a_stored_value_has_its_lifetime(load: LoadCalls, alice: Caller) -> None:
    """A number is stored as its digits, so that a cache's ``incr`` works."""
    for value, expected in (b"value", b"value"), (7, b"7"):
        alice(load.claim, MINE, override=True)
        assert alice(load.store, MINE, value)
        left, found = alice(load.read)
        assert found == expected
        assert 50_000 < left <= MINUTE


def test_a_store_ends_the_claim(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    alice(any_load.claim, MINE)
    assert alice(any_load.store, MINE, ttl_ms=0)
    assert bob(any_load.claim, THEIRS).verdict == CLAIMED


def test_a_store_without_a_claim_is_refused(load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S10] The token must be that of a claim [S9] whose lease hasn't ended."""
    assert not alice(load.store, MINE, b"never claimed")
    bob(load.claim, THEIRS)
    assert not alice(load.store, MINE, b"another caller's")
    bob(load.give_up, THEIRS)
    alice(load.claim, MINE, lease=0.05)
    eventually(lambda: not alice(load.check, MINE, 1)[0])
    assert not alice(load.store, MINE)
    assert alice(load.read) == (-2, None)


# Failures


def test_a_permit_of_a_transaction_stores_unless_the_value_changed(
    any_load: LoadCalls, alice: Caller, bob: Caller
) -> None:
    """[S1] The end of a load in a transaction frees the claim; other callers may load, also in transactions."""
    ends = {
        "nothing": lambda load: None,
        "another load": lambda load: bob(load.claim, NEXT),
        "store": lambda load: (bob(load.claim, NEXT), bob(load.store, NEXT)),
        "another commit": lambda load: bob(load.store, MINE, by_permit=True),
        "take": lambda load: bob(load.claim, NEXT, override=True),
        "invalidate": lambda load: bob(load.invalidate),
        "block": lambda load: bob(load.block, NEXT),
        "unblock": lambda load: bob(load.unblock, NEXT),
        "clear": lambda load: bob(load.clear),
    }
    for what, change in ends.items():
        load = any_load.sibling(what)
        alice(load.claim, MINE)
        assert alice(load.defer, MINE) == MINE
        assert not alice(load.store, MINE)
        bob(load.claim, THEIRS)
        assert bob(load.defer, THEIRS) == MINE  # the same permit
        change(load)
        assert alice(load.check, MINE, by_permit=True)[0] == (what in {"nothing", "another load"}), what
        assert alice(load.store, MINE, by_permit=True) == (what in {"nothing", "another load"}), what
        assert alice(load.defer, MINE) == ""


def test_a_claim_that_is_given_up_by_its_loader_is_free(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S10] Another caller's claim can neither be renewed nor given up."""
    alice(any_load.claim, MINE)
    assert bob(any_load.check, THEIRS) == (False, 0)
    assert not bob(any_load.give_up, THEIRS, MINUTE, "not mine")
    assert alice(any_load.give_up, MINE)
    assert bob(any_load.claim, THEIRS).verdict == CLAIMED
    assert not alice(any_load.give_up, MINE)
    assert bob(any_load.store, THEIRS)


def test_a_failure_is_returned_for_its_time(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S13] Waiters don't repeat it one after the other. Its reason is any text, truncated to 500 characters."""
    for why in ("OSError: no rates ünd so on", "", " ", "a" * 2000, "\n\x00", "\ud800"):
        alice(any_load.claim, MINE, override=True)
        assert alice(any_load.give_up, MINE, MINUTE, why), repr(why)
        claim = bob(any_load.claim, THEIRS)
        assert (claim.verdict, claim.reason) == (FAILED, why.encode(errors="replace").decode()[:500])
        assert 0 < claim.lease_left <= 60
    assert alice(any_load.claim, MINE, override=True).verdict == CLAIMED
    assert alice(any_load.give_up, MINE, 100, "and not yet")
    eventually(lambda: bob(any_load.claim, THEIRS).verdict == CLAIMED)


def test_a_failure_is_forgotten(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """By an invalidation, by a new generation, and by a claim with take."""
    for end in ("invalidate", "take", "clear"):
        load = any_load.sibling(end)
        alice(load.claim, MINE)
        alice(load.give_up, MINE, MINUTE, "why")
        if end != "take":
            bob(getattr(load, end))
        assert bob(load.claim, THEIRS, override=end == "take").verdict == CLAIMED, end


# Invalidation


@pytest.mark.exact("a second copy of an invalidation comes later")
def test_a_load_that_is_invalidated_stores_nothing(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S1] [V7] [V15] Only loads that began before it are invalid."""
    alice(any_load.claim, MINE)
    bob(any_load.invalidate)
    assert alice(any_load.check, MINE) == (False, 0)
    assert not alice(any_load.store, MINE, b"old")
    assert bob(any_load.claim, THEIRS).verdict == CLAIMED
    assert not alice(any_load.store, MINE, b"old")
    assert bob(any_load.store, THEIRS, b"new")


def test_an_invalidation_deletes_the_value_or_shortens_its_life(load: LoadCalls, alice: Caller) -> None:
    """[S1] With a stale time the value isn't kept longer than before, and a running load stores nothing, either."""
    alice(load.claim, MINE)
    alice(load.store, MINE, b"old")
    alice(load.claim, THEIRS, fresh_above=-1)
    alice(load.invalidate, 30_000)
    assert not alice(load.store, THEIRS, b"older")
    left, value = alice(load.read)
    assert value == b"old"
    assert 20_000 < left <= 30_000
    alice(load.invalidate, MINUTE)
    assert alice(load.read)[0] <= 30_000
    assert alice(load.invalidate) is True
    assert alice(load.read) == (-2, None)
    assert alice(load.invalidate) is False


# Replicas that lag


def test_a_value_stored_while_replicas_lag_lives_no_longer_than_the_lag(load: LoadCalls, alice: Caller) -> None:
    """[S7] The load may have read an old value from a replica. The value counts as fresh, so not every caller loads."""
    alice(load.invalidate, 0, 30_000)
    for keep in (MINUTE, -1):
        alice(load.claim, MINE, fresh_above=-1)
        assert alice(load.store, MINE, b"maybe old", keep)
        assert 20_000 < alice(load.read)[0] <= 30_000
    assert alice(load.claim, THEIRS, fresh_above=50_000).verdict == FRESH
    alice(load.claim, MINE, fresh_above=-1)
    alice(load.store, MINE, b"short", 1000)
    assert alice(load.read)[0] <= 1000


def test_check_returns_the_lag(any_load: LoadCalls, alice: Caller) -> None:
    """[S7] In milliseconds."""
    alice(any_load.claim, MINE)
    assert alice(any_load.check, MINE) == (True, 0)
    alice(any_load.invalidate, 0, 30_000)
    alice(any_load.claim, THEIRS)
    ours, lag_ms = alice(any_load.check, THEIRS)
    assert ours
    assert 20_000 < lag_ms <= 30_000


# Writers


def test_a_writer_blocks_claims_and_stores_of_all_its_keys(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S4] Until the end of the write. [S10] The first of two writers doesn't unblock the keys of the second."""
    other = any_load.sibling("v2")
    alice(any_load.claim, MINE)
    alice(other.claim, MINE)
    bob(any_load.block, THEIRS, other)
    for each in (any_load, other):
        assert not alice(each.store, MINE, b"old")
        assert alice(each.claim, NEXT).verdict == BUSY
    alice(any_load.block, MINE)
    bob(any_load.unblock, THEIRS, other)
    assert alice(any_load.claim, NEXT).verdict == BUSY
    alice(any_load.unblock, MINE)
    for each in (any_load, other):
        assert alice(each.claim, NEXT).verdict == CLAIMED


def test_the_end_of_a_write_invalidates_a_load_that_was_claimed_during_it(
    any_load: LoadCalls, alice: Caller, bob: Caller
) -> None:
    """[S4] The load may have read the value before the write."""
    alice(any_load.block, MINE)
    assert bob(any_load.claim, THEIRS, override=True).verdict == CLAIMED
    alice(any_load.unblock, MINE)
    assert not bob(any_load.store, THEIRS, b"maybe old")
    assert bob(any_load.claim, NEXT).verdict == CLAIMED


# Generations


def test_a_new_generation_voids_all_loads(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S31] When a cache is cleared. Generations never repeat, so no load becomes valid again."""
    other = any_load.sibling("v2")
    alice(any_load.claim, MINE)
    alice(other.claim, MINE)
    bob(any_load.clear)
    for each in (any_load, other):
        assert alice(each.check, MINE) == (False, 0)
        assert not alice(each.store, MINE, b"old")
        assert bob(each.claim, THEIRS).verdict == CLAIMED
        assert bob(each.store, THEIRS, b"new")
    alice(any_load.claim, MINE, override=True)
    for _ in range(3):
        bob(any_load.clear)
        assert not alice(any_load.store, MINE, b"old")

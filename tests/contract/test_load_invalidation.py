"""A value that is written or invalidated during its load: the loader's value isn't stored."""

from __future__ import annotations

import pytest

from tests.contract.matrix import Caller, threads_only
from tests.probes.load import BUSY, FRESH, MINUTE, OURS, LoadCalls

MINE, THEIRS, NEXT = "mine-token", "their-token", "next-token"

pytestmark = threads_only  # test_load_waiting.py meets both faces

# Invalidation


def test_a_load_that_is_invalidated_stores_nothing(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S1] [V7] [V15]"""
    alice(any_load.claim, MINE)
    bob(any_load.invalidate)
    assert alice(any_load.check, MINE) == (False, 0)
    assert not alice(any_load.store, MINE, b"old")


def test_an_invalidation_deletes_the_value(load: LoadCalls, alice: Caller) -> None:
    alice(load.claim, MINE)
    alice(load.store, MINE)
    assert alice(load.invalidate) is True
    assert alice(load.read) == (-2, None)
    assert alice(load.invalidate) is False


@pytest.mark.exact("a second copy of an invalidation comes later")
def test_a_claim_after_an_invalidation_stores(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S1] Only loads that began before it are void."""
    alice(any_load.claim, MINE)
    bob(any_load.invalidate)
    assert bob(any_load.claim, THEIRS).verdict == OURS
    assert not alice(any_load.store, MINE, b"old")
    assert bob(any_load.store, THEIRS, b"new")


def test_a_soft_invalidation_shortens_the_life_of_the_value(load: LoadCalls, alice: Caller) -> None:
    """It never lives longer for it."""
    alice(load.claim, MINE)
    alice(load.store, MINE, b"old")
    alice(load.invalidate, 30_000)
    left, value = alice(load.read)
    assert value == b"old"
    assert 20_000 < left <= 30_000
    alice(load.invalidate, MINUTE)
    assert alice(load.read)[0] <= 30_000


def test_a_load_that_is_softly_invalidated_stores_nothing(load: LoadCalls, alice: Caller) -> None:
    """[S1]"""
    alice(load.claim, MINE)
    alice(load.store, MINE, b"old")
    alice(load.claim, THEIRS, fresh_above=-1)
    alice(load.invalidate, 30_000)
    assert not alice(load.store, THEIRS, b"older")


# Replicas that lag


def test_a_value_stored_while_replicas_lag_lives_no_longer_than_the_lag(load: LoadCalls, alice: Caller) -> None:
    """[S7] A replica may still have the old value."""
    alice(load.invalidate, 0, 30_000)
    alice(load.claim, MINE)
    ours, settling = alice(load.check, MINE)
    assert ours
    assert 20_000 < settling <= 30_000
    for keep in (MINUTE, -1):
        alice(load.claim, MINE, fresh_above=-1)
        assert alice(load.store, MINE, b"maybe old", keep)
        assert 20_000 < alice(load.read)[0] <= 30_000
    alice(load.claim, MINE, fresh_above=-1)
    alice(load.store, MINE, b"short", 1000)
    assert alice(load.read)[0] <= 1000


def test_a_value_stored_while_replicas_lag_is_fresh(load: LoadCalls, alice: Caller) -> None:
    """[S7] Else each caller would load meanwhile."""
    alice(load.invalidate, 0, 30_000)
    alice(load.claim, MINE)
    alice(load.store, MINE, b"maybe old", MINUTE)
    assert alice(load.claim, THEIRS, fresh_above=50_000).verdict == FRESH


@pytest.mark.parametrize("any_load", [False], ids=["separate_server"], indirect=True)
def test_check_of_a_value_elsewhere_returns_the_lag(any_load: LoadCalls, alice: Caller) -> None:
    """[S7]"""
    alice(any_load.claim, MINE)
    assert alice(any_load.check, MINE) == (True, 0)
    alice(any_load.invalidate, 0, 30_000)
    alice(any_load.claim, THEIRS)
    ours, settling = alice(any_load.check, THEIRS)
    assert ours
    assert 20_000 < settling <= 30_000


# Writers


def test_a_writer_blocks_claims_and_stores_of_all_its_keys(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S4] Until it is done."""
    other = any_load.sibling("v2")
    alice(any_load.claim, MINE)
    alice(other.claim, MINE)
    bob(any_load.block, THEIRS, other)
    for each in (any_load, other):
        assert not alice(each.store, MINE, b"old")
        assert alice(each.claim, NEXT).verdict == BUSY
    bob(any_load.unblock, THEIRS, other)
    for each in (any_load, other):
        assert alice(each.claim, NEXT).verdict == OURS


def test_the_first_of_two_writers_does_not_unblock_the_second(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S10]"""
    alice(any_load.block, MINE)
    bob(any_load.block, THEIRS)
    alice(any_load.unblock, MINE)
    assert alice(any_load.claim, NEXT).verdict == BUSY
    bob(any_load.unblock, THEIRS)
    assert alice(any_load.claim, NEXT).verdict == OURS


def test_the_end_of_a_write_voids_a_load_that_was_claimed_meanwhile(
    any_load: LoadCalls, alice: Caller, bob: Caller
) -> None:
    """[S4] It may have read what was there before the write."""
    alice(any_load.block, MINE)
    assert bob(any_load.claim, THEIRS, take=True).verdict == OURS
    alice(any_load.unblock, MINE)
    assert not bob(any_load.store, THEIRS, b"maybe old")
    assert bob(any_load.claim, NEXT).verdict == OURS


# Generations


def test_a_new_generation_voids_all_loads(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S31] A cache is cleared."""
    other = any_load.sibling("v2")
    alice(any_load.claim, MINE)
    alice(other.claim, MINE)
    bob(any_load.clear)
    for each in (any_load, other):
        assert alice(each.check, MINE) == (False, 0)
        assert not alice(each.store, MINE, b"old")
        assert bob(each.claim, THEIRS).verdict == OURS
        assert bob(each.store, THEIRS, b"new")


def test_a_later_generation_revives_no_load(any_load: LoadCalls, alice: Caller, bob: Caller) -> None:
    """[S31] No generation comes twice."""
    alice(any_load.claim, MINE)
    for _ in range(3):
        bob(any_load.clear)
        assert not alice(any_load.store, MINE, b"old")

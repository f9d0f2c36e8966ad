"""What is written or invalidated during a load: what the load brings is not stored."""

from __future__ import annotations

import pytest

from django_redis_locks.primitives.load import (
    BUSY,
    FRESH,
    OURS,
)
from tests.contract.desk import MINE, MINUTE, NEXT, THEIRS, Desk
from tests.contract.matrix import Caller, Face


def test_what_is_invalidated_during_a_load_is_not_stored(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S1] [V7] [V15]"""
    alice(either.claim, MINE)
    bob(either.fence)
    assert alice(either.check, MINE) == (False, 0)
    assert not alice(either.store, MINE, b"old")


def test_an_invalidation_takes_the_value(desk: Desk, alice: Caller) -> None:
    alice(desk.claim, MINE)
    alice(desk.store, MINE)
    assert alice(desk.fence) is True
    assert alice(desk.read) == (-2, None)
    assert alice(desk.fence) is False


@pytest.mark.exact("a second copy of a fence comes later")
def test_who_claims_after_an_invalidation_stores(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S1] Only those who began before it are void."""
    alice(either.claim, MINE)
    bob(either.fence)
    assert bob(either.claim, THEIRS).verdict == OURS
    assert not alice(either.store, MINE, b"old")
    assert bob(either.store, THEIRS, b"new")


def test_a_soft_invalidation_leaves_the_value_to_those_who_take_it_stale(desk: Desk, alice: Caller) -> None:
    alice(desk.claim, MINE)
    alice(desk.store, MINE, b"old")
    alice(desk.fence, 30_000)
    left, value = alice(desk.read)
    assert value == b"old"
    assert 20_000 < left <= 30_000
    alice(desk.fence, MINUTE)
    assert alice(desk.read)[0] <= 30_000  # it never lives longer for it


def test_a_soft_invalidation_voids_a_load(desk: Desk, alice: Caller) -> None:
    """[S1]"""
    alice(desk.claim, MINE)
    alice(desk.store, MINE, b"old")
    alice(desk.claim, THEIRS, fresh_above=-1)
    alice(desk.fence, 30_000)
    assert not alice(desk.store, THEIRS, b"older")


def test_while_values_settle_they_are_kept_no_longer(desk: Desk, alice: Caller) -> None:
    """[S7] A replica may still tell what was before."""
    alice(desk.fence, 0, 30_000)
    alice(desk.claim, MINE)
    ours, settling = alice(desk.check, MINE)
    assert ours
    assert 20_000 < settling <= 30_000
    for keep in (MINUTE, -1):
        alice(desk.claim, MINE, fresh_above=-1)
        assert alice(desk.store, MINE, b"maybe old", keep)
        assert 20_000 < alice(desk.read)[0] <= 30_000
    alice(desk.claim, MINE, fresh_above=-1)
    alice(desk.store, MINE, b"short", 1000)
    assert alice(desk.read)[0] <= 1000


def test_what_settles_is_fresh(desk: Desk, alice: Caller) -> None:
    """[S7] Else each caller would load while the replica lags."""
    alice(desk.fence, 0, 30_000)
    alice(desk.claim, MINE)
    alice(desk.store, MINE, b"maybe old", MINUTE)
    assert alice(desk.claim, THEIRS, fresh_above=50_000).verdict == FRESH


def test_who_loads_elsewhere_is_told_how_long_values_settle(face: Face, alice: Caller) -> None:
    """[S7]"""
    desk = Desk(face.key, fused=False)
    alice(desk.claim, MINE)
    assert alice(desk.check, MINE) == (True, 0)
    alice(desk.fence, 0, 30_000)
    alice(desk.claim, THEIRS)
    ours, settling = alice(desk.check, THEIRS)
    assert ours
    assert 20_000 < settling <= 30_000


def test_a_writer_takes_the_loads(either: Desk, face: Face, alice: Caller, bob: Caller) -> None:
    """[S4] Nobody stores or claims until he is done, of any of his keys."""
    other = Desk(face.key, "v2", fused=bool(either.load.keys.value))
    alice(either.claim, MINE)
    alice(other.claim, MINE)
    bob(either.block, THEIRS, other)
    for each in (either, other):
        assert not alice(each.store, MINE, b"old")
        assert alice(each.claim, NEXT).verdict == BUSY
    bob(either.unblock, THEIRS, other)
    for each in (either, other):
        assert alice(each.claim, NEXT).verdict == OURS


def test_two_writers(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S10] The first one's end isn't the second one's."""
    alice(either.block, MINE)
    bob(either.block, THEIRS)
    alice(either.unblock, MINE)
    assert alice(either.claim, NEXT).verdict == BUSY
    bob(either.unblock, THEIRS)
    assert alice(either.claim, NEXT).verdict == OURS


def test_a_writer_who_dies_blocks_nobody_for_long(either: Desk, alice: Caller, bob: Caller) -> None:
    alice(either.block, MINE, lease=200)
    assert bob(either.claim, THEIRS, wait=10).verdict == OURS


def test_a_new_generation_voids_all_loads(either: Desk, face: Face, alice: Caller, bob: Caller) -> None:
    """[S31] A cache is cleared."""
    other = Desk(face.key, "v2", fused=bool(either.load.keys.value))
    alice(either.claim, MINE)
    alice(other.claim, MINE)
    bob(either.clear)
    for each in (either, other):
        assert alice(each.check, MINE) == (False, 0)
        assert not alice(each.store, MINE, b"old")
        assert bob(each.claim, THEIRS).verdict == OURS
        assert bob(each.store, THEIRS, b"new")


def test_a_generation_never_comes_twice(either: Desk, alice: Caller, bob: Caller) -> None:
    """[S31] Nor does one revive a load of an older one."""
    alice(either.claim, MINE)
    for _ in range(3):
        bob(either.clear)
        assert not alice(either.store, MINE, b"old")


def test_a_generation_forgets_failures(either: Desk, alice: Caller, bob: Caller) -> None:
    """They are of what was before."""
    alice(either.claim, MINE)
    alice(either.give_up, MINE, MINUTE, "why")
    bob(either.clear)
    assert bob(either.claim, THEIRS).verdict == OURS

"""Fences can be moved forward, for a store that was moved or restored, and never back."""

from __future__ import annotations

from itertools import count

import pytest

from django_redis_locks import diagnosis
from tests.contract.matrix import Caller, Face

_prefixes = (f"moved{number}" for number in count(1))

HOUR = 3_600_000_000
"""In microseconds, as fences are."""


@pytest.fixture
def moved(face: Face) -> Face:
    """An alias with counters of its own: no fence goes back."""
    face.configure(KEY_PREFIX=next(_prefixes))
    return face


def test_a_store_without_fences_tells_its_clock(moved: Face, alice: Caller) -> None:
    (counter,) = alice(diagnosis.fences)
    assert (counter.bucket, counter.last) == (0, 0)
    assert counter.clock > 10**15
    assert counter.next == counter.clock


def test_what_was_given_is_told(moved: Face, alice: Caller) -> None:
    grant = alice(moved.lock("a").acquire)
    (counter,) = alice(diagnosis.fences)
    assert 0 <= counter.last - grant.fence < 16
    assert alice(diagnosis.fences)[0].last == counter.last, "asking moves nothing"


def test_fences_go_on_from_where_they_are_moved_to(moved: Face, alice: Caller) -> None:
    """[H1] Rows may have fences that are ahead of a new server's clock: the next hold's is greater all the same."""
    (before,) = alice(diagnosis.fences)
    (after,) = alice(diagnosis.raise_fences, before.clock + HOUR)
    assert after.last == before.clock + HOUR
    assert after.next == after.last + 1
    fences = []
    for _ in range(3):
        grant = alice(moved.lock("a").acquire)
        fences.append(grant.fence)
        alice(grant.release)
    assert fences == sorted(set(fences))
    assert fences[0] == after.next


@pytest.mark.parametrize("ahead", [True, False])
def test_fences_never_go_back(moved: Face, alice: Caller, *, ahead: bool) -> None:
    """Nor does the request that is sent twice, or comes late."""
    grant = alice(moved.lock("a").acquire)
    assert grant.fence is not None
    if ahead:
        alice(diagnosis.raise_fences, grant.fence + HOUR)
    (before,) = alice(diagnosis.fences)
    for least in (0, 1, 5, grant.fence, before.last - 1, before.last):
        assert alice(diagnosis.raise_fences, least)[0].last == before.last
    alice(grant.release)
    assert alice(moved.lock("a").acquire).fence > before.last - 16


@pytest.mark.parametrize("least", [-1, 2**52 + 1, 10**30, True, 1.5, "5", None], ids=repr)
def test_only_to_a_fence_can_fences_be_moved(moved: Face, alice: Caller, least: object) -> None:
    """Beyond 2**53 Lua gives the same fence twice."""
    with pytest.raises(ValueError, match="a fence is a whole number from 0 to"):
        alice(diagnosis.raise_fences, least)


def test_a_store_tells_of_itself(moved: Face, alice: Caller) -> None:
    facts = alice(diagnosis.facts)
    assert facts.server in {"Redis", "Valkey", "memory"}
    assert facts.role == "master"
    assert facts.denied == ()
    assert facts.ahead is not None
    assert abs(facts.ahead) < 5

"""The fence counters of a store can be raised, for a store that was moved or restored, but never lowered."""

from __future__ import annotations

from zlib import crc32

import pytest

from django_redis_locks import diagnosis
from django_redis_locks.core.server_info import FenceCounter
from tests.contract.matrix import Caller, Face, threads_only
from tests.probes.engine import RESERVED_FENCES

pytestmark = threads_only  # test_asyncio.py compares both APIs

HOUR = 3_600_000_000
"""In microseconds, as fences are."""


@pytest.fixture(autouse=True)
def isolated(face: Face) -> None:
    """An alias with counters of its own, since fences can't be lowered."""
    face.isolate()


def of_a(counters: list[FenceCounter]) -> FenceCounter:
    """The counter of the bucket of the key ``a``."""
    assert [counter.bucket for counter in counters] == list(range(len(counters)))
    return counters[crc32(b"a") % len(counters)]


@pytest.mark.one_server
def test_fences_shows_the_last_fence_and_changes_nothing(face: Face, alice: Caller) -> None:
    """For an unused store, its clock."""
    counter = of_a(alice(diagnosis.fences))
    assert counter.last == 0
    assert counter.clock > 10**15
    assert counter.next == counter.clock
    grant = alice(face.lock("a").acquire)
    counter = of_a(alice(diagnosis.fences))
    assert 0 <= counter.last - grant.fence < RESERVED_FENCES
    assert of_a(alice(diagnosis.fences)).last == counter.last


def test_raise_fences_sets_the_next_fence(face: Face, alice: Caller) -> None:
    """[H1] Database rows may have fences that are ahead of a new server's clock: the next fence is still greater."""
    before = of_a(alice(diagnosis.fences))
    after = of_a(alice(diagnosis.raise_fences, before.clock + HOUR))
    assert after.last == before.clock + HOUR
    assert after.next == after.last + 1
    fences = []
    for _ in range(3):
        grant = alice(face.lock("a").acquire)
        fences.append(grant.fence)
        alice(grant.release)
    assert fences == sorted(set(fences))
    assert fences[0] == after.next


@pytest.mark.parametrize("ahead", [True, False])
def test_raise_fences_never_lowers_them(face: Face, alice: Caller, *, ahead: bool) -> None:
    """Not even by a duplicate or late request."""
    grant = alice(face.lock("a").acquire)
    assert grant.fence is not None
    if ahead:
        alice(diagnosis.raise_fences, grant.fence + HOUR)
    before = of_a(alice(diagnosis.fences))
    for least in (0, 1, 5, grant.fence, before.last - 1, before.last):
        assert of_a(alice(diagnosis.raise_fences, least)).last == before.last
    alice(grant.release)
    assert alice(face.lock("a").acquire).fence > before.last - RESERVED_FENCES


def test_facts_describe_the_server(alice: Caller) -> None:
    facts = alice(diagnosis.facts)
    assert facts.server in {"Redis", "Valkey", "ZooKeeper", "memory"}
    assert facts.role == "master"
    assert facts.denied == ()
    if facts.server == "ZooKeeper":
        return  # it has no clock
    assert facts.ahead is not None
    assert abs(facts.ahead) < 5

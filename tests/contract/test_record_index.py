"""Which index lists a record, and until when. The calls are the same behind both faces."""

from __future__ import annotations

import pytest

from django_redis_locks import RecordRef, locks
from tests.contract.matrix import Caller, Face, eventually, on_memory, threads_only, wait_until_prolonged
from tests.probes.engine import forget_ended_entries, index_entries

pytestmark = threads_only


@pytest.fixture
def record(face: Face) -> RecordRef:
    face.isolate()
    return face.record()


def test_each_put_says_which_index_lists_it(record: RecordRef, alice: Caller) -> None:
    """And a drop removes it."""
    was = None
    for listed, expected in [
        (False, []),
        (True, ["held"]),
        (True, ["held"]),
        ("queued", ["queued"]),
        (True, ["held"]),
        (False, []),
        ("queued", ["queued"]),
    ]:
        was = alice(record.put, was, {"listed": listed}, listed=listed).record
        assert list(index_entries(record)) == expected
    alice(record.drop, was)
    assert index_entries(record) == {}


def test_another_caller_moves_the_entry(record: RecordRef, alice: Caller, bob: Caller) -> None:
    """The store knows where the record is listed: another process reads it, and writes or drops."""
    alice(record.put, None, {}, listed=True)
    bob(record.put, bob(record.get), {}, listed="queued")
    assert list(index_entries(record)) == ["queued"]
    alice(record.drop, alice(record.get))
    assert index_entries(record) == {}


def test_an_entry_ends_with_the_lease(record: RecordRef, alice: Caller) -> None:
    written = alice(record.put, None, {}, 60, listed="queued").record
    assert 40 < index_entries(record)["queued"] <= 60
    alice(record.touch, written, 30)
    assert 40 < index_entries(record)["queued"] <= 60
    alice(record.touch, written, 90)
    assert 70 < index_entries(record)["queued"] <= 90
    alice(record.touch, written, 30, shorten=True)
    assert 10 < index_entries(record)["queued"] <= 30
    unlisted = alice(record.put, written, {}).record
    alice(record.touch, unlisted, 90)
    assert index_entries(record) == {}


@pytest.mark.usefixtures("often")
def test_a_renewal_moves_the_entry(record: RecordRef, alice: Caller) -> None:
    """Or an operator would see the lease of a living job end."""
    kept = alice(record.put, None, {}, 9, renew=True, listed=True).record

    wait_until_prolonged(lambda: index_entries(record)["held"])
    assert not kept.lost
    alice(record.drop, kept)
    assert index_entries(record) == {}


def test_a_refused_put_lists_nothing(record: RecordRef, alice: Caller, bob: Caller) -> None:
    mine = alice(record.put, None, {}).record
    assert not bob(record.put, None, {}, listed=True)
    assert index_entries(record) == {}
    mine = alice(record.put, mine, {}, listed=True).record
    assert not bob(record.put, None, {})
    assert list(index_entries(record)) == ["held"]
    alice(record.drop, mine)


def test_without_INDEX_nothing_is_listed(face: Face, alice: Caller) -> None:
    face.isolate(INDEX=False)
    record = face.record()
    written = alice(record.put, None, {}, listed=True).record
    assert index_entries(record) == {}
    assert alice(record.drop, alice(record.touch, written, 90).record)


@on_memory  # test_wire_format.py has it for Redis
def test_a_put_removes_old_entries(record: RecordRef, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H16] Jobs that died leave entries; where there are only jobs no acquire removes them."""
    forget_ended_entries(monkeypatch)
    dead = [locks.record(f"dead:{n}") for n in range(3)]
    for one in dead:
        alice(one.put, None, {}, 0.01, listed=True)
    eventually(lambda: all(alice(one.get) is None for one in dead))
    was = alice(record.put, None, {}, listed=True).record
    while was.version % 10:
        was = alice(record.put, was, {}, listed=True).record
    assert [index_entries(one) for one in dead] == [{}, {}, {}]

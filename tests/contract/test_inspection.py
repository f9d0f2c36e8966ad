"""Inspection lists the locks of an alias, finds one, and frees the one that was meant."""

from __future__ import annotations

import pytest

from django_redis_locks import Grant, LockLost, inspection
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, threads_only
from tests.probes.engine import set_page_size

HOSTILE = ["order 1", "a:b{c}%20", "<b>x</b>", "line\nbreak", "\x00", "é" * 300, "x" * 400 + "%~", "*", "%~" + "0" * 32]


pytestmark = threads_only  # test_asyncio.py compares the faces


@pytest.fixture(autouse=True)
def isolated(face: Face) -> None:
    """An alias with an index of its own."""
    face.isolate()


@pytest.fixture
def five(face: Face, alice: Caller) -> list[Grant]:
    """Five locks, the first of which ends last."""
    return [alice(face.lock(f"order:{n}", expire=60 - 10 * n).acquire) for n in range(5)]


def keys_of(page: inspection.Page) -> list[str]:
    return [row.key for row in page.rows]


# One lock


def test_a_held_lock_has_its_holder_lease_and_waiters(face: Face, alice: Caller, bob: Caller) -> None:
    """[F18]"""
    lock = face.lock("order:42", expire=60)
    grant = alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    (row,) = alice(inspection.held).rows
    assert (row.alias, row.key, row.name, row.kind, row.state) == ("default", "order:42", "order", "lock", "held")
    assert row.holder == alice(lock.holder) or row.holder.fence == grant.fence
    assert row.fence == grant.fence
    assert 40 < row.lease_left <= 60
    assert 0 <= row.held_for < 10
    assert row.since is not None
    assert row.waiting == 1
    alice(grant.release)
    bob(waiting.result(PATIENCE).release)
    assert alice(inspection.held).rows == []


def test_the_name_is_that_of_the_lock_if_METADATA_has_it(face: Face, alice: Caller) -> None:
    alice(face.lock("order:42", name="payments").acquire)
    assert alice(inspection.held).rows[0].name == "payments"
    face.isolate(METADATA=[])
    alice(face.lock("order:42", name="payments").acquire)
    assert alice(inspection.held).rows[0].name == "order"


def test_a_lease_that_ended_without_a_release_is_expired(face: Face, alice: Caller) -> None:
    """[H16] It is listed for an hour; a lock that was released isn't."""
    alice(face.lock("lives").acquire)
    alice(alice(face.lock("released").acquire).release)
    alice(face.lock("died", expire=0.05).acquire)
    eventually(lambda: not alice(face.lock("died").locked))
    assert keys_of(alice(inspection.held)) == ["lives"]
    (row,) = alice(inspection.held, state="expired").rows
    assert (row.key, row.state, row.holder, row.held_for) == ("died", "expired", None, None)
    assert row.lease_left <= 0
    assert keys_of(alice(inspection.held, state="all")) == ["died", "lives"]
    assert alice(inspection.counts) == inspection.Counts(held=1, expired=1)


def test_a_lock_held_beyond_its_MAX_HOLD_is_overdue(face: Face, alice: Caller) -> None:
    """[F13]"""
    face.isolate(LOCKS={"short": {"MAX_HOLD": 0.02, "RENEW": False, "EXPIRE": 0.02}})
    alice(face.lock("short:1", expire=60).acquire)
    alice(face.lock("long:1").acquire)
    eventually(lambda: keys_of(alice(inspection.held, state="overdue")) == ["short:1"])
    assert {row.state for row in alice(inspection.held).rows} == {"held", "overdue"}


def test_an_entry_of_a_free_lock_is_not_shown(face: Face, alice: Caller) -> None:
    """[D61] The index is a hint."""
    alice(face.lock("a").acquire)
    face.configure(KEY_PREFIX=face.prefix, INDEX=False)
    alice(face.lock("a").force_release)
    page = alice(inspection.held)
    assert (page.rows, page.indexed) == ([], False)
    face.configure(KEY_PREFIX=face.prefix)
    page = alice(inspection.held)
    assert (page.rows, page.indexed, page.total) == ([], True, 1)


def test_another_kind_of_value_is_foreign_and_never_freed(face: Face, alice: Caller) -> None:
    alice(face.record().put, None, {"a": 1}, 30)
    found = alice(inspection.find, face.key)
    assert (found.state, found.foreign, found.holder) == ("foreign", "a record", None)
    assert alice(inspection.force_release, face.key) is False


# Lists


@pytest.mark.usefixtures("five")
def test_held_is_sorted_by_its_order(alice: Caller) -> None:
    for order, expected in (
        ("lease_left", "43210"),
        ("key", "01234"),
        ("fence", "01234"),
        ("name", ""),
        ("held_for", ""),
        ("waiting", ""),
        ("holder", ""),
    ):
        found = [key[-1] for key in keys_of(alice(inspection.held, order=order))]
        assert found == list(expected or found), order
        assert len(found) == 5, order
        if expected:
            found = [key[-1] for key in keys_of(alice(inspection.held, order=f"-{order}"))]
            assert found == list(reversed(expected)), order


@pytest.mark.usefixtures("five")
def test_each_lock_is_on_one_page(alice: Caller) -> None:
    for how in ({}, {"order": "key"}, {"order": "fence"}, {"match": "order"}):
        seen, cursor = [], 0
        while cursor is not None:
            page = alice(inspection.held, limit=2, cursor=cursor, **how)
            assert page.total == 5
            assert not page.partial
            assert len(page.rows) <= 2
            seen += keys_of(page)
            cursor = page.next
        assert sorted(seen) == [f"order:{n}" for n in range(5)], how


def test_match_is_a_part_of_the_key_or_a_pattern(face: Face, alice: Caller) -> None:
    for key in ("Order:1", "order:2", "reorder", "user[x]"):
        alice(face.lock(key).acquire)
    for match, expected in (
        ("order", ["Order:1", "order:2", "reorder"]),
        ("ORDER:", ["Order:1", "order:2"]),
        ("order*", ["Order:1", "order:2"]),
        ("order:?", ["Order:1", "order:2"]),
        ("*2", ["order:2"]),
        ("[a-z]*", []),
        ("[x]", ["user[x]"]),
        ("nothing", []),
    ):
        assert sorted(keys_of(alice(inspection.held, match=match))) == sorted(expected), match


def test_held_of_more_locks_than_are_sorted_is_partial(
    face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MOST", 2)
    for n in range(3):
        alice(face.lock(f"order:{n}").acquire)
    assert alice(inspection.held, order="key").partial
    assert not alice(inspection.held).partial
    assert alice(inspection.held).total == 3


def test_held_of_many_locks_reads_several_replies(face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has each lock once."""
    set_page_size(monkeypatch, entries=3, looks=2)
    for n in range(7):
        alice(face.lock(f"order:{n}").acquire)
    for order in ("lease_left", "key", "fence"):
        assert sorted(keys_of(alice(inspection.held, order=order))) == [f"order:{n}" for n in range(7)]


# Forced releases


def test_every_key_is_found_and_freed(face: Face, alice: Caller) -> None:
    """[D48] By what the list shows, and by itself."""
    for key in HOSTILE:
        grant = alice(face.lock(key).acquire)
        (row,) = alice(inspection.held).rows
        assert row.key == key or len(key) > 200
        for spelled in (row.key, key):
            found = alice(inspection.find, spelled)
            assert (found.key, found.fence) == (row.key, grant.fence), key
        assert alice(inspection.force_release, row.key, fence=row.fence) is True, key
        assert alice(inspection.find, key).state == "free", key
        with pytest.raises(LockLost):
            alice(grant.release)


def test_force_release_frees_only_the_hold_that_was_shown(face: Face, alice: Caller, bob: Caller) -> None:
    """[D58] Between the list and the click another caller may have acquired."""
    lock = face.lock("order:1")
    first = alice(lock.acquire)
    row = alice(inspection.find, "order:1")
    alice(first.release)
    second = bob(lock.acquire)
    assert alice(inspection.force_release, "order:1", fence=row.fence) is False
    bob(second.ensure_held, confirm=True)
    bob(second.release)

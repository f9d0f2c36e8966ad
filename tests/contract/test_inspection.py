"""What a listing shows of the locks of an alias, and that it frees the one that was meant."""

from __future__ import annotations

from itertools import count

import pytest

from django_redis_locks import Grant, LockKeyError, LockLost, inspection, locks
from django_redis_locks.primitives import listing
from tests.contract.matrix import PATIENCE, Caller, Face, eventually

_prefixes = (f"listed{number}" for number in count(1))

HOSTILE = ["order 1", "a:b{c}%20", "<b>x</b>", "line\nbreak", "\x00", "é" * 300, "x" * 400 + "%~", "*", "%~" + "0" * 32]


@pytest.fixture
def listed(face: Face) -> Face:
    """An alias with an index of its own."""
    face.configure(KEY_PREFIX=next(_prefixes))
    return face


@pytest.fixture
def five(listed: Face, alice: Caller) -> list[Grant]:
    """Five locks, the first of which ends last."""
    return [alice(listed.lock(f"order:{n}", expire=60 - 10 * n).acquire) for n in range(5)]


def keys_of(page: inspection.Page) -> list[str]:
    return [row.key for row in page.rows]


def test_a_lock_as_it_is(listed: Face, alice: Caller, bob: Caller) -> None:
    """[F18] Who holds it, since when, for how long still, and how many processes wait."""
    lock = listed.lock("order:42", expire=60)
    grant = alice(lock.acquire)
    waiting = listed.start_waiting(bob, lock, timeout=PATIENCE)
    eventually(lambda: listed.quiet(lock))
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


def test_the_name_is_what_the_lock_was_given(listed: Face, alice: Caller) -> None:
    alice(listed.lock("order:42", name="payments").acquire)
    assert alice(inspection.held).rows[0].name == "payments"
    listed.configure(KEY_PREFIX=next(_prefixes), METADATA=[])
    alice(listed.lock("order:42", name="payments").acquire)
    assert alice(inspection.held).rows[0].name == "order"


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("lease_left", "43210"),
        ("-lease_left", "01234"),
        ("key", "01234"),
        ("-key", "43210"),
        ("fence", "01234"),
        ("-fence", "43210"),
        ("name", ""),
        ("held_for", ""),
        ("waiting", ""),
        ("holder", ""),
    ],
)
def test_orders(listed: Face, alice: Caller, order: str, expected: str) -> None:
    found = [key[-1] for key in keys_of(alice(inspection.held, order=order))]
    assert found == list(expected or found)
    assert len(found) == 5


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("how", [{}, {"order": "key"}, {"order": "fence"}, {"match": "order"}], ids=str)
def test_pages(listed: Face, alice: Caller, how: dict[str, str]) -> None:
    """Each lock is on one page, in every order."""
    seen, cursor = [], 0
    while cursor is not None:
        page = alice(inspection.held, limit=2, cursor=cursor, **how)
        assert page.total == 5
        assert not page.partial
        assert len(page.rows) <= 2
        seen += keys_of(page)
        cursor = page.next
    assert sorted(seen) == [f"order:{n}" for n in range(5)]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("order", ["Order:1", "order:2", "reorder"]),
        ("ORDER:", ["Order:1", "order:2"]),
        ("order*", ["Order:1", "order:2"]),
        ("order:?", ["Order:1", "order:2"]),
        ("*2", ["order:2"]),
        ("[a-z]*", []),
        ("[x]", ["user[x]"]),
        ("nothing", []),
    ],
)
def test_matches(listed: Face, alice: Caller, match: str, expected: list[str]) -> None:
    for key in ("Order:1", "order:2", "reorder", "user[x]"):
        alice(listed.lock(key).acquire)
    assert sorted(keys_of(alice(inspection.held, match=match))) == sorted(expected)


def test_a_lease_that_ended_without_a_release(listed: Face, alice: Caller) -> None:
    """[H16] Whoever died is shown for an hour; a lock that was released isn't."""
    alice(listed.lock("lives").acquire)
    alice(alice(listed.lock("released").acquire).release)
    alice(listed.lock("died", expire=0.05).acquire)
    eventually(lambda: not alice(listed.lock("died").locked))
    assert keys_of(alice(inspection.held)) == ["lives"]
    (row,) = alice(inspection.held, state="expired").rows
    assert (row.key, row.state, row.holder, row.held_for) == ("died", "expired", None, None)
    assert row.lease_left <= 0
    assert keys_of(alice(inspection.held, state="all")) == ["died", "lives"]
    assert alice(inspection.counts) == inspection.Counts(held=1, expired=1)


def test_overdue(listed: Face, alice: Caller) -> None:
    """[F13] It is held for longer than it would be renewed."""
    listed.configure(KEY_PREFIX=next(_prefixes), LOCKS={"short": {"MAX_HOLD": 0.02, "RENEW": False, "EXPIRE": 0.02}})
    alice(listed.lock("short:1", expire=60).acquire)
    alice(listed.lock("long:1").acquire)
    eventually(lambda: keys_of(alice(inspection.held, state="overdue")) == ["short:1"])
    assert {row.state for row in alice(inspection.held).rows} == {"held", "overdue"}


def test_what_was_freed_behind_the_index(listed: Face, alice: Caller) -> None:
    """[D61] The index is a hint: what it lists and nobody holds isn't shown."""
    lock = listed.lock("a")
    alice(lock.acquire)
    prefix = locks["default"].settings.key_prefix
    listed.configure(KEY_PREFIX=prefix, INDEX=False)
    alice(listed.lock("a").force_release)
    page = alice(inspection.held)
    assert (page.rows, page.indexed) == ([], False)
    listed.configure(KEY_PREFIX=prefix)
    page = alice(inspection.held)
    assert (page.rows, page.indexed, page.total) == ([], True, 1)


@pytest.mark.parametrize("key", HOSTILE, ids=repr)
def test_every_key_is_found_again(listed: Face, alice: Caller, key: str) -> None:
    """[D48] By what the listing shows, and by itself; and freed."""
    grant = alice(listed.lock(key).acquire)
    (row,) = alice(inspection.held).rows
    assert row.key == key or len(key) > 200
    for spelled in (row.key, key):
        found = alice(inspection.find, spelled)
        assert (found.key, found.fence) == (row.key, grant.fence)
    assert alice(inspection.force_release, row.key, fence=row.fence) is True
    assert alice(inspection.find, key).state == "free"
    with pytest.raises(LockLost):
        alice(grant.release)


def test_only_the_hold_that_was_shown_is_freed(listed: Face, alice: Caller, bob: Caller) -> None:
    """[D58] Between the list and the click somebody else may have acquired it."""
    lock = listed.lock("order:1")
    first = alice(lock.acquire)
    row = alice(inspection.find, "order:1")
    alice(first.release)
    second = bob(lock.acquire)
    assert alice(inspection.force_release, "order:1", fence=row.fence) is False
    bob(second.ensure_held, confirm=True)
    bob(second.release)


def test_a_stranger_under_the_key(listed: Face, alice: Caller) -> None:
    """What is no lock is shown as what it is, and never freed."""
    record = listed.record()
    alice(record.put, None, {"a": 1}, 30)
    found = alice(inspection.find, listed.key)
    assert (found.state, found.foreign, found.holder) == ("foreign", "a record", None)
    assert alice(inspection.force_release, listed.key) is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": "age"}, "order is one of lease_left, key"),
        ({"state": "stuck"}, "state is one of held, overdue"),
        ({"limit": 0}, "limit is a whole number from 1 to 1000"),
        ({"limit": True}, "limit is a whole number"),
        ({"cursor": -1}, "cursor is a whole number from 0 on"),
    ],
)
def test_bad_questions(listed: Face, alice: Caller, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        alice(inspection.held, **wrong)


def test_no_key(listed: Face, alice: Caller) -> None:
    for call in (inspection.find, inspection.force_release):
        with pytest.raises(LockKeyError):
            alice(call, "")


def test_more_than_are_sorted(listed: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, instead of showing some as if they were all."""
    monkeypatch.setattr(inspection, "MOST", 2)
    for n in range(3):
        alice(listed.lock(f"order:{n}").acquire)
    assert alice(inspection.held, order="key").partial
    assert not alice(inspection.held).partial
    assert alice(inspection.held).total == 3


def test_locks_by_the_thousand(listed: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in several answers, and each of them once."""
    monkeypatch.setattr(listing, "PAGE", 3)
    monkeypatch.setattr(listing, "LOOK", 2)
    for n in range(7):
        alice(listed.lock(f"order:{n}").acquire)
    for order in ("lease_left", "key", "fence"):
        assert sorted(keys_of(alice(inspection.held, order=order))) == [f"order:{n}" for n in range(7)]

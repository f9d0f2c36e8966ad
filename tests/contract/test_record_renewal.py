"""Records under terms of their own: for how long they are renewed, who hears of a loss, and which index lists them."""

from __future__ import annotations

import gc
import threading
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import RecordRef, locks
from django_redis_locks.core import clock, events
from django_redis_locks.core.runner import run
from django_redis_locks.primitives.listing import entries
from django_redis_locks.primitives.record_values import queued_in
from tests.contract.matrix import PATIENCE, Caller, Face, eventually
from tests.contract.test_record import lose_one_answer

_prefixes = (f"recorded{number}" for number in count(1))


@pytest.fixture
def record(face: Face) -> RecordRef:
    """One whose index is its own."""
    face.configure(KEY_PREFIX=next(_prefixes))
    return face.record()


def lists(record: RecordRef) -> dict[str, float]:
    """In which indexes it is, and how many seconds before the end of its lease."""
    found = {}
    for name, listing in ("held", record.keys.listing), ("queued", queued_in(record.keys.listing)):
        for which in ("held", "ended"):
            page = run(entries(listing, which, 0, 100), locks["default"].engine)
            ends = dict(page.found)
            if record.keys.lock in ends:
                found[name] = ends[record.keys.lock] - page.at
    return found


# Which index lists it


def test_it_is_listed_if_that_is_wished(record: RecordRef, alice: Caller) -> None:
    """Each write says anew where; a drop takes it out."""
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
        assert list(lists(record)) == expected
    alice(record.drop, was)
    assert lists(record) == {}


def test_who_writes_next_need_not_know(record: RecordRef, alice: Caller, bob: Caller) -> None:
    """Where it is listed the store knows: another process reads it, and writes or drops."""
    alice(record.put, None, {}, listed=True)
    bob(record.put, bob(record.get), {}, listed="queued")
    assert list(lists(record)) == ["queued"]
    alice(record.drop, alice(record.get))
    assert lists(record) == {}


def test_its_entry_ends_with_its_lease(record: RecordRef, alice: Caller) -> None:
    written = alice(record.put, None, {}, 60, listed="queued").record
    assert 40 < lists(record)["queued"] <= 60
    alice(record.touch, written, 30)
    assert 40 < lists(record)["queued"] <= 60
    alice(record.touch, written, 90)
    assert 70 < lists(record)["queued"] <= 90
    alice(record.touch, written, 30, shorten=True)
    assert 10 < lists(record)["queued"] <= 30
    unlisted = alice(record.put, written, {}).record
    alice(record.touch, unlisted, 90)
    assert lists(record) == {}


@pytest.mark.usefixtures("often")
def test_a_renewal_moves_its_entry(record: RecordRef, alice: Caller) -> None:
    """Or an operator would see the lease of a living job end."""
    kept = alice(record.put, None, {}, 9, renew=True, listed=True).record

    def ends() -> float:
        now = clock.now()
        return now + lists(record)["held"]

    first = ends()
    eventually(lambda: ends() > first + 0.3)
    assert not kept.lost
    alice(record.drop, kept)
    assert lists(record) == {}


def test_a_refused_write_lists_nothing(record: RecordRef, alice: Caller, bob: Caller) -> None:
    mine = alice(record.put, None, {}).record
    assert not bob(record.put, None, {}, listed=True)
    assert lists(record) == {}
    mine = alice(record.put, mine, {}, listed=True).record
    assert not bob(record.put, None, {})
    assert list(lists(record)) == ["held"]
    alice(record.drop, mine)


@pytest.mark.parametrize("method", ["put", "drop"])
def test_a_repeated_request_lists_it_once(
    record: RecordRef, face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """[H19a] Carried out, its answer lost, sent again."""
    known = None if method == "put" else alice(record.put, None, {}, listed=True).record
    lose_one_answer(face, monkeypatch, f"record/{method}")
    if method == "put":
        assert alice(record.put, None, {}, listed=True)
    else:
        assert alice(record.drop, known)
    assert list(lists(record)) == (["held"] if method == "put" else [])


def test_without_an_index_nothing_is_listed(face: Face, alice: Caller) -> None:
    face.configure(KEY_PREFIX=next(_prefixes), INDEX=False)
    record = face.record()
    written = alice(record.put, None, {}, listed=True).record
    assert lists(record) == {}
    assert alice(record.drop, alice(record.touch, written, 90).record)


@pytest.mark.exact("an old entry goes with one write in ten")
def test_old_entries_are_removed(record: RecordRef, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H16] Jobs that died leave entries; where there are only jobs no acquire removes them."""
    if "memory" not in locks["default"].engine.backend.identity:
        pytest.skip("test_wire_format.py has it for Redis")
    monkeypatch.setattr("django_redis_locks.backends.memory.store.INDEX_RETENTION", 0)
    dead = [locks.record(f"dead:{n}") for n in range(3)]
    for one in dead:
        alice(one.put, None, {}, 0.01, listed=True)
    eventually(lambda: all(alice(one.get) is None for one in dead))
    was = alice(record.put, None, {}, listed=True).record
    while was.version % 10:
        was = alice(record.put, was, {}, listed=True).record
    assert [lists(one) for one in dead] == [{}, {}, {}]


# Renewal


@pytest.mark.usefixtures("often")
def test_it_is_renewed_for_its_own_max_hold(
    record: RecordRef, face: Face, alice: Caller, happened: list[events.Event]
) -> None:
    """[F13] Whatever the alias says."""
    for _ in range(5):  # a machine that stands still may end the lease before anybody looks for how long it was held
        happened.clear()
        kept = alice(record.put, None, {}, 1.5, renew=True, max_hold=0.1).record
        eventually(lambda: happened)
        losses = [event.why for event in happened if isinstance(event, events.Lost)]
        assert kept.lost
        eventually(lambda: alice(record.get) is None)
        if losses != ["expired"]:
            break
    assert losses == ["max_hold"]


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("max_hold", [-1, 60])
def test_a_record_may_be_renewed_for_longer_than_a_lock(
    face: Face, alice: Caller, happened: list[events.Event], max_hold: float
) -> None:
    face.configure(EXPIRE=0.05, MAX_HOLD=0.1)
    record = face.record()
    kept = alice(record.put, None, {}, 9, renew=True, max_hold=max_hold).record
    short = alice(locks.record(f"{face.key}:short").put, None, {}, 2, renew=True).record
    eventually(lambda: short.lost)
    eventually(lambda: alice(record.get).lease_left > 8)  # two seconds after its renewals would have ended
    assert not kept.lost
    assert alice(record.get).version == kept.version
    alice(record.drop, kept)


@pytest.mark.usefixtures("often")
def test_a_renewed_record_tells_of_its_loss(face: Face, alice: Caller, bob: Caller) -> None:
    """[F11] Once, with what was written; also if a touch returned another value since."""
    record = face.record()
    told: SimpleQueue[Any] = SimpleQueue()
    mine = alice(record.put, None, {"n": 1}, 9, renew=True, on_lost=told.put).record
    mine = alice(record.touch, mine, 10).record
    for caller in (alice, bob):
        caller(record.get)  # a task's frame keeps its last call
    gc.collect()
    bob(record.put, bob(record.get), {"by": "bob"})
    seen = told.get(timeout=PATIENCE)
    assert (seen.version, seen.fields, seen.lost) == (mine.version, {"n": 1}, True)
    assert mine.lost
    assert told.empty()


@pytest.mark.usefixtures("often")
def test_where_it_tells(face: Face, alice: Caller, bob: Caller) -> None:
    """[F11] In the renewal's thread; of a record that a task wrote, in its loop."""
    record = face.record()
    told: SimpleQueue[str] = SimpleQueue()
    mine = alice(
        record.put, None, {}, 9, renew=True, on_lost=lambda _: told.put(threading.current_thread().name)
    ).record
    bob(record.drop, bob(record.get))
    assert told.get(timeout=PATIENCE) == ("tests' loop" if face.is_async else "django-redis-locks janitor")
    assert mine.lost


@pytest.mark.usefixtures("often")
def test_who_drops_or_overwrites_his_own_is_told_nothing(face: Face, alice: Caller) -> None:
    record = face.record()
    told: SimpleQueue[Any] = SimpleQueue()
    first = alice(record.put, None, {}, 9, renew=True, on_lost=told.put).record
    second = alice(record.put, first, {}, 9, renew=True, on_lost=told.put).record
    alice(record.drop, second)
    sentinel = alice(locks.record(f"{face.key}:2").put, None, {}, 0.6, renew=True, max_hold=0.1).record
    eventually(lambda: sentinel.lost)  # the janitor was at work meanwhile
    assert told.empty()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_hold": 5}, "renew=True"),
        ({"on_lost": print}, "renew=True"),
        ({"renew": True, "max_hold": 0}, "max_hold must be between"),
        ({"renew": True, "max_hold": -2}, "max_hold must be between"),
        ({"renew": True, "on_lost": "cancel"}, "on_lost is None or a callable"),
        ({"listed": "held"}, 'listed is True, False or "queued"'),
        ({"listed": 1}, 'listed is True, False or "queued"'),
    ],
)
def test_terms_that_mean_nothing(face: Face, alice: Caller, wrong: dict[str, Any], message: str) -> None:
    with face.commands() as commands, pytest.raises(ValueError, match=message):
        alice(face.record().put, None, {}, **wrong)
    assert commands == []

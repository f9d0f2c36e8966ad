"""Inspection lists the locks and jobs of an alias, finds one by key, and frees exactly the selected one."""

from __future__ import annotations

import re
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import Grant, LockLost, LockNotAcquired, Record, inspection, locks
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, start_queueing, threads_only
from tests.probes.engine import all_registered, run_between_index_reads, set_most_listed, set_page_size

HOSTILE = ["order 1", "a:b{c}%20", "<b>x</b>", "line\nbreak", "\x00", "é" * 300, "x" * 400 + "%~", "*", "%~" + "0" * 32]

HOLDER = ["web-3", 4711, "MainThread", "shop.tasks.export"]

pytestmark = threads_only  # test_asyncio.py compares both APIs


@pytest.fixture(autouse=True)
def isolated(face: Face) -> None:
    """An alias with an index of its own."""
    face.isolate()


@pytest.fixture
def five(face: Face, alice: Caller) -> list[Grant]:
    """Five locks, the first of which ends last."""
    return [alice(face.lock(f"order:{n}", expire=60 - 10 * n).acquire) for n in range(5)]


def fields_of(task: str, state: str, **more: Any) -> dict[str, Any]:
    return {"v": 1, "state": state, "id": task, **more}


def queue(caller: Caller, task: str, state: str = "queued", expire: float = 60) -> Record:
    record: Record = caller(
        locks.record(f"job:export:{task}").put, None, fields_of(task, state), expire, show_in_admin="queued"
    ).record
    return record


def begin(caller: Caller, task: str, was: Record | None = None, *, holder: Any = HOLDER, **how: Any) -> Record:
    fields = fields_of(task, "running", holder=holder)
    written: Any = caller(
        locks.record(f"job:export:{task}").put, was, fields, **{"expire": 60, "show_in_admin": True} | how
    )
    assert written
    record: Record = written.record
    return record


def keys_of(page: inspection.Page) -> list[str]:
    return [row.key for row in page.rows]


def tasks_of(page: inspection.Page) -> list[str | None]:
    return [row.task_id for row in page.rows]


# One lock


@pytest.mark.needs("wakes")
def test_a_held_lock_has_its_holder_lease_and_waiters(face: Face, alice: Caller, bob: Caller) -> None:
    """[F18] As the inspection shows it."""
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
    # a request whose reply is lost leaves its registration until the background removes it
    eventually(lambda: [row.waiting for row in alice(inspection.held).rows] == [1])
    alice(grant.release)
    bob(waiting.result(PATIENCE).release)
    assert alice(inspection.held).rows == []


def test_the_name_is_that_of_the_lock_if_METADATA_has_it(face: Face, alice: Caller) -> None:
    for name in ("payments", "order"):
        alice(face.lock("order:42", name="payments").acquire)
        assert alice(inspection.held).rows[0].name == name
        face.isolate(METADATA=[])


def test_a_lease_that_ended_without_a_release_is_expired(face: Face, alice: Caller) -> None:
    """[H16] It is listed for an hour, as is a job; a released lock isn't."""
    alice(face.lock("lives").acquire)
    alice(alice(face.lock("released").acquire).release)
    alice(face.lock("died", expire=0.05).acquire)
    begin(alice, "died", expire=0.05)
    eventually(lambda: alice(inspection.find, "job:export:died").state == "free")
    eventually(lambda: alice(inspection.counts) == inspection.Counts(held=1, expired=2))
    assert keys_of(alice(inspection.held)) == ["lives"]
    for row, key in zip(
        alice(inspection.held, state="expired", order="key").rows, ("died", "job:export:died"), strict=True
    ):
        assert (row.key, row.state, row.holder, row.held_for, row.fence) == (key, "expired", None, None, None)
        assert row.lease_left <= 0
    assert sorted(keys_of(alice(inspection.held, state="all"))) == ["died", "job:export:died", "lives"]


def test_a_lock_held_beyond_its_MAX_HOLD_is_overdue_and_a_running_job_is_not(face: Face, alice: Caller) -> None:
    """[F13] MAX_HOLD applies to locks only."""
    face.isolate(EXPIRE=0.01, MAX_HOLD=0.01, LOCKS={"long": {"MAX_HOLD": 60, "EXPIRE": 30}})
    begin(alice, "t1")
    alice(face.lock("short:1", expire=60).acquire)
    alice(face.lock("long:1").acquire)
    eventually(lambda: keys_of(alice(inspection.held, state="overdue")) == ["short:1"])
    assert {row.key: row.state for row in alice(inspection.held).rows} == {
        "short:1": "overdue",
        "long:1": "held",
        "job:export:t1": "held",
    }


@pytest.mark.usefixtures("frequent_renewal")
def test_the_note_of_a_call_site_is_stored_with_the_holder(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] METADATA has no part in it. The next holder has its own note, also after a hand-over. Unprintable characters
    are escaped where it is shown."""
    face.isolate(METADATA=[])
    grant = alice(face.lock(note="import of\n2031", max_hold=600).acquire)
    waiting = face.start_waiting(bob, face.lock(note="ä" * 100), timeout=PATIENCE)
    holder = alice(inspection.find, face.key).holder
    assert (holder.note, holder.host, str(holder)) == (r"import of\n2031", None, r"unknown host (import of\n2031)")
    with pytest.raises(LockNotAcquired, match=re.escape(f"busy, held by {holder};")):
        face.caller()(face.lock(wait=0, note="x").acquire)
    alice(grant.release)
    waiting.result(PATIENCE)
    eventually(lambda: alice(face.lock().holder).note == "ä" * 100)  # a hand-over is stored with the next renewal


def test_an_entry_of_a_free_lock_is_not_shown(face: Face, alice: Caller) -> None:
    """[D61] The index may have outdated entries."""
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


# One job


def test_a_running_job_has_its_task_and_worker(alice: Caller) -> None:
    record = begin(alice, "t1")
    (row,) = alice(inspection.held).rows
    assert (row.alias, row.key, row.name, row.kind) == ("default", "job:export:t1", "shop.tasks.export", "job")
    assert (row.state, row.task_id, row.fence) == ("held", "t1", record.version)
    assert (row.holder.host, row.holder.pid, row.holder.thread) == ("web-3", 4711, "MainThread")
    assert str(row.holder) == "web-3 pid 4711 MainThread"
    assert 40 < row.lease_left <= 60
    assert 0 <= row.held_for < 10
    assert row.since.timestamp() == pytest.approx(record.version / 1e6)
    assert (row.waiting, row.foreign) == (0, "")
    found = alice(inspection.find, "job:export:t1")
    assert (found.state, found.task_id, found.fence, found.holder.host) == ("held", "t1", record.version, "web-3")


def test_a_waiting_job_is_queued_and_not_held(face: Face, alice: Caller) -> None:
    """A waiting job has no holder."""
    for word in ("reserved", "unsure", "queued"):
        face.isolate()
        queue(alice, "t1", word)
        assert (tasks_of(alice(inspection.held)), alice(inspection.held).total) == ([], 0), word
        page = alice(inspection.held, state="queued")
        (row,) = page.rows
        assert (page.total, row.kind, row.state, row.task_id, row.holder) == (1, "job", "queued", "t1", None), word
        assert row.name == "export"
        assert row.fence is not None
        assert 0 <= row.held_for < 10


def test_a_finished_job_is_found_and_not_listed(alice: Caller) -> None:
    """Until its record expires."""
    record = locks.record("job:export:t1")
    alice(record.put, begin(alice, "t1"), fields_of("t1", "done"), 60)
    assert alice(inspection.held, state="all").rows == []
    found = alice(inspection.find, "job:export:t1")
    assert (found.state, found.kind, found.task_id, found.holder) == ("done", "job", "t1", None)
    assert (found.fence, found.version) == (None, alice(record.get).version)  # there is nothing to free
    assert alice(inspection.force_release, "job:export:t1") is False


def test_a_record_with_any_fields_is_shown(face: Face, alice: Caller) -> None:
    """A record that is no job, as its writer listed it; a job with any value as holder."""
    for fields in (
        {},
        {"state": "ready"},
        {"state": "running"},
        {"state": ["running"], "id": "t1"},
        {"state": "running", "id": 7},
        {"id": "t1", "holder": HOLDER},
    ):
        for listed, state in ((True, "held"), ("queued", "queued")):
            face.isolate()
            written = alice(locks.record("report:1").put, None, fields, 60, show_in_admin=listed).record
            (row,) = alice(inspection.held, state=state).rows
            shown = (row.kind, row.state, row.name, row.task_id, row.holder)
            assert shown == ("record", state, "report", None, None), fields
            assert row.fence == written.version
    for holder in (None, "web-3", {}, [], [1, [], None], ["web-3"]):
        face.isolate()
        begin(alice, "t1", holder=holder)
        (row,) = alice(inspection.held).rows
        assert (row.state, row.task_id) == ("held", "t1"), holder
        assert (row.holder is None) == (not isinstance(holder, list)), holder
        str(row.holder)


def test_latch_is_found_with_what_is_left_of_its_count(face: Face, alice: Caller, bob: Caller) -> None:
    """It isn't listed, and there is nothing to free."""
    face.isolate()
    latch = locks.latch("import:1")
    alice(latch.try_set, 2, 60)
    waiting = start_queueing(latch, bob, latch.wait)
    eventually(lambda: all_registered(latch))
    for left, state in ((1, "closed"), (0, "open")):
        assert alice(latch.count_down) == left
        found = alice(inspection.find, "import:1")
        assert (found.kind, found.state, found.left, found.name) == ("latch", state, left, "import")
        assert (found.holder, found.fence, found.waiting) == (None, None, left)
        assert found.lease_left is not None
        assert 30 < found.lease_left <= 60
    assert waiting.result(PATIENCE)
    assert alice(inspection.held, state="all").rows == []
    assert not alice(inspection.force_release, "import:1")


def test_a_job_that_begins_while_both_indexes_are_read_is_shown_once(
    alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in one of the two indexes at any time."""
    record = queue(alice, "t1")
    one_part = len(locks["default"].indexes)
    run_between_index_reads(monkeypatch, one_part, lambda: begin(alice, "t1", record))
    page = inspection.held(state="all")  # read in the test's own thread
    assert (tasks_of(page), [row.state for row in page.rows], page.total) == (["t1"], ["held"], 1)


# Lists


@pytest.mark.usefixtures("five")
def test_held_is_sorted_by_its_order(alice: Caller) -> None:
    for order, expected in (("lease_left", "43210"), ("key", "01234"), ("fence", "01234")):
        assert [key[-1] for key in keys_of(alice(inspection.held, order=order))] == list(expected), order
        found = [key[-1] for key in keys_of(alice(inspection.held, order=f"-{order}"))]
        assert found == list(reversed(expected)), order
    for order in ("name", "held_for", "waiting", "holder"):
        assert len(alice(inspection.held, order=order).rows) == 5, order


def test_each_lock_and_job_is_on_one_page_of_its_state(face: Face, alice: Caller) -> None:
    """Totals and cursors count the shown rows: queued jobs don't count as held."""
    for n in range(5):
        queue(alice, f"q{n}", expire=60 + n)
        begin(alice, f"r{n}", expire=60 + n)
        alice(face.lock(f"lock:{n}", expire=60 + n).acquire)
    for state, total in [("held", 10), ("queued", 5), ("all", 15), ("expired", 0)]:
        for how in ({}, {"order": "key"}, {"order": "-held_for"}, {"order": "fence", "match": "o"}):
            seen: list[str] = []
            cursor: int | None = 0
            while cursor is not None:
                page = alice(inspection.held, state=state, limit=3, cursor=cursor, **how)
                assert (page.total, page.partial, len(page.rows)) == (total, False, min(3, total - cursor)), how
                seen += keys_of(page)
                cursor = page.next
            assert len(set(seen)) == len(seen) == total, how
    assert alice(inspection.counts) == inspection.Counts(held=10, expired=0, queued=5)
    assert tasks_of(alice(inspection.held, state="queued", match="Q3")) == ["q3"]


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


def test_held_of_many_locks_reads_several_replies_and_sorts_some(
    face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lock is listed once."""
    set_page_size(monkeypatch, entries=3, looks=2)
    for n in range(7):
        alice(face.lock(f"order:{n}").acquire)
    for order in ("lease_left", "key", "fence"):
        assert sorted(keys_of(alice(inspection.held, order=order))) == [f"order:{n}" for n in range(7)]
    set_most_listed(monkeypatch, 2)
    assert alice(inspection.held, order="key").partial
    assert not alice(inspection.held).partial
    assert alice(inspection.held).total == 7


# Forced releases


def test_every_key_is_found_and_freed(face: Face, alice: Caller) -> None:
    """[D48] By the key in the list, and by the key itself."""
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
    """[D58] Between the display and the click another caller may have acquired the lock."""
    lock = face.lock("order:1")
    first = alice(lock.acquire)
    row = alice(inspection.find, "order:1")
    alice(first.release)
    second = bob(lock.acquire)
    assert alice(inspection.force_release, "order:1", fence=row.fence) is False
    bob(second.ensure_held, confirm=True)
    bob(second.release)


@pytest.mark.usefixtures("frequent_renewal")
def test_force_release_of_a_running_job_calls_its_on_lost(alice: Caller, bob: Caller) -> None:
    """[D58] [F11] The renewal detects it, as for a lock, and the next run may begin."""
    lost: SimpleQueue[Any] = SimpleQueue()
    mine = begin(alice, "t1", expire=9, renew=True, on_lost=lost.put)
    row = bob(inspection.find, "job:export:t1")
    assert bob(inspection.force_release, "job:export:t1", fence=row.fence, reason="hangs") is True
    assert bob(inspection.find, "job:export:t1").state == "free"
    assert alice(inspection.counts) == inspection.Counts(held=0, expired=0)
    assert lost.get(timeout=PATIENCE).version == mine.version
    assert mine.lost
    begin(bob, "t1")
    assert not alice(locks.record("job:export:t1").put, mine, fields_of("t1", "done"))


@pytest.mark.exact("a forced release whose reply was lost may have freed the lock")
def test_force_release_frees_only_the_version_that_was_shown(alice: Caller, bob: Caller) -> None:
    """[D58] The job may have begun since the display."""
    record = queue(alice, "t1")
    assert alice(inspection.counts) == inspection.Counts(held=0, expired=0, queued=1)
    running = begin(bob, "t1", record)
    assert alice(inspection.counts) == inspection.Counts(held=1, expired=0)
    for fence in (record.version, running.version - 1, running.version + 1):  # records reserve no fences
        assert alice(inspection.force_release, "job:export:t1", fence=fence) is False
    assert bob(locks.record("job:export:t1").get).version == running.version
    assert alice(inspection.force_release, "job:export:t1") is True
    queued = queue(alice, "t1")
    assert alice(inspection.force_release, "job:export:t1", fence=queued.version) is True
    assert alice(inspection.counts) == inspection.Counts(held=0, expired=0)


@pytest.mark.exact("a forced release whose reply was lost may have freed the lock")
def test_force_release_of_an_unlisted_record_frees_nothing(alice: Caller) -> None:
    """[L45] Its writer doesn't offer it to operators, and it may be foreign."""
    alice(locks.record("report:1").put, None, fields_of("t1", "running"), 60)
    assert alice(inspection.force_release, "report:1") is False
    assert alice(locks.record("report:1").get) is not None


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_force_release_of_a_job_ends_waits_for_its_change(face: Face, alice: Caller, bob: Caller) -> None:
    record = locks.record("job:export:t1")
    mine = begin(alice, "t1")
    changes = [face.start_watching(face.caller(), record, mine, 2 * PATIENCE) for _ in range(2)]
    bob(inspection.force_release, "job:export:t1")
    assert [change.result(PATIENCE) for change in changes] == [None, None]

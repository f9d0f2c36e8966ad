"""What operators see of jobs, whose records are listed, and that they can free them."""

from __future__ import annotations

from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import Record, inspection, locks
from tests.contract.matrix import PATIENCE, Caller, Face, eventually

_prefixes = (f"jobs{number}" for number in count(1))

HOLDER = ["web-3", 4711, "MainThread", "shop.tasks.export"]


@pytest.fixture
def jobs(face: Face) -> Face:
    """An alias with an index of its own."""
    face.configure(KEY_PREFIX=next(_prefixes))
    return face


def fields_of(task: str, state: str, **more: Any) -> dict[str, Any]:
    return {"v": 1, "state": state, "id": task, **more}


def queue(caller: Caller, task: str, state: str = "queued", expire: float = 60) -> Record:
    written: Record = caller(
        locks.record(f"job:export:{task}").put, None, fields_of(task, state), expire, listed="queued"
    )
    return written.record


def begin(caller: Caller, task: str, was: Record | None = None, **how: Any) -> Record:
    record = locks.record(f"job:export:{task}")
    fields = fields_of(task, "running", holder=HOLDER)
    written: Any = caller(record.put, was, fields, **{"expire": 60, "listed": True} | how)
    assert written
    found: Record = written.record
    return found


def tasks_of(page: inspection.Page) -> list[str | None]:
    return [row.task_id for row in page.rows]


def test_a_job_that_runs(jobs: Face, alice: Caller) -> None:
    """Which task, where, since when."""
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


@pytest.mark.parametrize("word", ["reserved", "unsure", "queued"])
def test_a_job_that_waits_is_not_held(jobs: Face, alice: Caller, word: str) -> None:
    """Nobody runs it, and nobody can be blamed for it."""
    queue(alice, "t1", word)
    assert (tasks_of(alice(inspection.held)), alice(inspection.held).total) == ([], 0)
    page = alice(inspection.held, state="queued")
    (row,) = page.rows
    assert (page.total, row.kind, row.state, row.task_id, row.holder) == (1, "job", "queued", "t1", None)
    assert row.name == "export"
    assert row.fence is not None
    assert 0 <= row.held_for < 10


def test_a_job_that_is_done_is_not_listed(jobs: Face, alice: Caller) -> None:
    """Whoever knows its key finds it, until its record goes."""
    record = locks.record("job:export:t1")
    alice(record.put, begin(alice, "t1"), fields_of("t1", "done"), 60)
    assert alice(inspection.held, state="all").rows == []
    found = alice(inspection.find, "job:export:t1")
    assert (found.state, found.kind, found.task_id, found.holder) == ("done", "job", "t1", None)
    assert (found.fence, found.version) == (None, alice(record.get).version)  # nothing to free
    assert alice(inspection.force_release, "job:export:t1") is False


def test_a_job_is_never_overdue(jobs: Face, alice: Caller) -> None:
    """How long it may run is its own matter, not that of an alias."""
    jobs.configure(KEY_PREFIX=next(_prefixes), EXPIRE=0.01, MAX_HOLD=0.01)
    begin(alice, "t1")
    alice(locks.lock("lock", expire=60).acquire)
    eventually(lambda: [row.key for row in alice(inspection.held, state="overdue").rows] == ["lock"])
    assert {row.state for row in alice(inspection.held).rows if row.kind == "job"} == {"held"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"state": "ready"},
        {"state": "running"},
        {"state": ["running"], "id": "t1"},
        {"state": "running", "id": 7},
        {"id": "t1", "holder": HOLDER},
    ],
    ids=str,
)
@pytest.mark.parametrize(("listed", "state"), [(True, "held"), ("queued", "queued")])
def test_a_record_that_is_no_job(
    jobs: Face, alice: Caller, fields: dict[str, Any], listed: Any, state: inspection.Choice
) -> None:
    """It is shown where it wished to be."""
    written = alice(locks.record("report:1").put, None, fields, 60, listed=listed).record
    (row,) = alice(inspection.held, state=state).rows
    assert (row.kind, row.state, row.name, row.task_id, row.holder) == ("record", state, "report", None, None)
    assert row.fence == written.version


@pytest.mark.parametrize("holder", [None, "web-3", {}, [], [1, [], None], ["web-3"]], ids=repr)
def test_what_is_written_of_the_holder_may_be_anything(jobs: Face, alice: Caller, holder: Any) -> None:
    """A page shows all the same."""
    alice(locks.record("job:export:t1").put, None, fields_of("t1", "running", holder=holder), listed=True)
    (row,) = alice(inspection.held).rows
    assert (row.state, row.task_id) == ("held", "t1")
    assert (row.holder is None) == (not isinstance(holder, list))
    str(row.holder)


def test_each_is_on_its_page(jobs: Face, alice: Caller) -> None:
    """Totals and cursors count what is shown: what waits isn't among what is held."""
    for n in range(5):
        queue(alice, f"q{n}", expire=60 + n)
        begin(alice, f"r{n}", expire=60 + n)
        alice(locks.lock(f"lock:{n}", expire=60 + n).acquire)
    for state, total in [("held", 10), ("queued", 5), ("all", 15), ("expired", 0)]:
        for order in ("lease_left", "key", "-held_for"):
            seen: list[str] = []
            cursor: int | None = 0
            while cursor is not None:
                page = alice(inspection.held, state=state, order=order, limit=3, cursor=cursor)
                assert page.total == total
                assert len(page.rows) == min(3, total - cursor)
                seen += [row.key for row in page.rows]
                cursor = page.next
            assert len(set(seen)) == len(seen) == total
    assert alice(inspection.counts) == inspection.Counts(held=10, expired=0, queued=5)
    assert tasks_of(alice(inspection.held, state="queued", match="Q3")) == ["q3"]


def test_a_job_that_begins_moves(jobs: Face, alice: Caller, bob: Caller) -> None:
    record = queue(alice, "t1")
    running = begin(bob, "t1", record)
    assert alice(inspection.counts) == inspection.Counts(held=1, expired=0)
    alice(locks.record("job:export:t1").put, running, fields_of("t1", "queued"), listed="queued")
    assert alice(inspection.counts) == inspection.Counts(held=0, expired=0, queued=1)


def test_a_job_that_began_between_the_index_and_the_look(
    jobs: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown is what it is by now; it is on no page twice."""
    record = queue(alice, "t1")
    looks = inspection.looks

    def late(keys: Any) -> Any:
        if not alice(inspection.counts).held:
            begin(alice, "t1", record)
        return looks(keys)

    with monkeypatch.context() as patch:
        patch.setattr(inspection, "looks", late)
        page = inspection.held(state="queued")  # the test's own thread reads
    assert (page.rows, page.total) == ([], 1)
    assert tasks_of(inspection.held(state="all")) == ["t1"]


def test_a_job_that_begins_while_all_is_read(jobs: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown once: neither missed by both parts of the index, nor found in both."""
    record = queue(alice, "t1")
    entries = inspection.entries
    reads = []

    def moving(*how: Any, **more: Any) -> Any:
        page = yield from entries(*how, **more)
        reads.append(how)
        if len(reads) == len(locks["default"].listings):  # one part is read
            begin(alice, "t1", record)
        return page

    monkeypatch.setattr(inspection, "entries", moving)
    page = inspection.held(state="all")  # the test's own thread reads
    assert (tasks_of(page), [row.state for row in page.rows], page.total) == (["t1"], ["held"], 1)


def test_a_job_that_died_is_shown_as_a_lock_is(jobs: Face, alice: Caller) -> None:
    """[H16] Its lease ended without an end."""
    begin(alice, "t1", expire=0.05)
    eventually(lambda: alice(inspection.find, "job:export:t1").state == "free")
    eventually(lambda: alice(inspection.counts) == inspection.Counts(held=0, expired=1))
    (row,) = alice(inspection.held, state="expired").rows
    assert (row.key, row.state, row.fence) == ("job:export:t1", "expired", None)


# Freed by force


@pytest.mark.usefixtures("often")
def test_a_job_is_freed_and_its_body_hears_of_it(jobs: Face, alice: Caller, bob: Caller) -> None:
    """[D58] [F11] As a lock: the renewal finds out, and the next one may begin."""
    told: SimpleQueue[Any] = SimpleQueue()
    mine = begin(alice, "t1", expire=9, renew=True, on_lost=told.put)
    row = bob(inspection.find, "job:export:t1")
    assert bob(inspection.force_release, "job:export:t1", fence=row.fence, reason="hangs") is True
    assert bob(inspection.find, "job:export:t1").state == "free"
    assert alice(inspection.counts) == inspection.Counts(held=0, expired=0)
    assert told.get(timeout=PATIENCE).version == mine.version
    assert mine.lost
    begin(bob, "t1")
    assert not alice(locks.record("job:export:t1").put, mine, fields_of("t1", "done"))


def test_a_job_that_waits_is_freed(jobs: Face, alice: Caller) -> None:
    """Its place in the index goes with it."""
    record = queue(alice, "t1")
    assert alice(inspection.force_release, "job:export:t1", fence=record.version) is True
    assert alice(inspection.counts) == inspection.Counts(held=0, expired=0, queued=0)


@pytest.mark.exact("a force whose answer was lost may have freed something")
def test_only_the_job_that_was_shown_is_freed(jobs: Face, alice: Caller, bob: Caller) -> None:
    """[D58] It has moved on: the click is for what was."""
    record = queue(alice, "t1")
    running = begin(bob, "t1", record)
    for fence in (record.version, running.version - 1, running.version + 1):  # records know of no spare ones
        assert alice(inspection.force_release, "job:export:t1", fence=fence) is False
    assert bob(locks.record("job:export:t1").get).version == running.version
    assert alice(inspection.force_release, "job:export:t1") is True


@pytest.mark.exact("a force whose answer was lost may have freed something")
def test_a_record_that_is_not_listed_stays(jobs: Face, alice: Caller) -> None:
    """[L45] Nobody asked for operators to have it; it may not be ours."""
    alice(locks.record("report:1").put, None, fields_of("t1", "running"), 60)
    assert alice(inspection.force_release, "report:1") is False
    assert alice(locks.record("report:1").get) is not None


@pytest.mark.usefixtures("no_polling")
def test_who_waits_for_a_change_is_told(jobs: Face, alice: Caller, bob: Caller) -> None:
    """Those who follow a job learn that it is no more."""
    record = locks.record("job:export:t1")
    mine = begin(alice, "t1")
    changes = [jobs.start_watching(jobs.caller(), record, mine, 2 * PATIENCE) for _ in range(2)]
    bob(inspection.force_release, "job:export:t1")
    assert [change.result(PATIENCE) for change in changes] == [None, None]


@pytest.mark.exact("a force whose answer was lost may have freed something")
def test_without_an_index_a_job_is_freed_all_the_same(jobs: Face, alice: Caller) -> None:
    jobs.configure(KEY_PREFIX=next(_prefixes), INDEX=False)
    record = begin(alice, "t1")
    assert alice(inspection.find, "job:export:t1").task_id == "t1"
    assert alice(inspection.force_release, "job:export:t1", fence=record.version) is True
    assert alice(inspection.find, "job:export:t1").state == "free"

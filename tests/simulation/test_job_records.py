"""What a run leaves in its record, for messages that come late: single histories of the job world."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from celery_locks.header import HEADER
from celery_locks.job import Job
from celery_locks.job_record import JobRecord
from tests.simulation.broker import Message
from tests.simulation.installation import Installation, installed
from tests.simulation.job_rules import LEASE
from tests.simulation.job_world import JobWorld


class History:
    """A job world in which only that happens which a test asks for."""

    def __init__(self, installation: Installation, scene: str) -> None:
        self.world = JobWorld(1, installation, scene=scene)
        self.world.plans = []

    def write(self, job: Job, lease: float = LEASE, key: str = "") -> None:
        """Have a record there from the beginning."""
        process = self.world.web[0]
        job_record = JobRecord(process.locks.record(self.world.key + key, name="t"))
        process.thread("writer", partial(job_record.put, None, job, lease))
        self.world.scheduler.run_until(self.world.is_quiet, 1000.0)

    def receive(self, id: str, reserved: int, *, counted: bool = False) -> Job:
        """A worker takes a message. Returns what is left in the record when all is done."""
        world = self.world
        headers = {HEADER: {"v": 1, "key": world.key, "id": id, "reserved": reserved}}
        world.broker.send(Message(id, (), headers, 0, world.scheduler.now, counted=counted))
        world.scheduler.run_until(world.is_quiet, 1000.0, step=0.1)
        assert not world.scheduler.problems
        jobs = [job for key, job in world.rules.records() if key.endswith(world.key.replace(":run", ""))]
        return jobs[0] if jobs else Job("done", "")


@pytest.fixture
def installation() -> Iterator[Installation]:
    with installed() as installation:
        yield installation


@pytest.fixture
def history(installation: Installation) -> Iterator[History]:
    history = History(installation, "replaced")
    yield history
    history.world.close()


def test_run_that_succeeds_outdates_what_was_sent_before(history: History) -> None:
    """[C30]"""
    assert history.receive("a", 7).last_success == 7


def test_run_that_fails_outdates_nothing(history: History) -> None:
    history.world.plans = ["fail"]
    assert history.receive("a", 7).last_success == 0


def test_run_that_fails_still_replaces_what_it_replaced(history: History) -> None:
    """A message that was replaced isn't run later with old arguments."""
    history.write(Job("queued", "b", first_reserved=5, reserved=9))
    history.world.plans = ["fail"]
    job = history.receive("b", 9)
    assert (job.first_reserved, job.reserved, job.outcome) == (5, 9, "failure")
    assert history.receive("a", 5).id == "b"
    assert history.world.results.get_state("a") == "REVOKED"


@pytest.mark.parametrize("plan", ["success", "fail"])
def test_run_is_known_until_the_messages_that_it_replaces_have_come(history: History, plan: str) -> None:
    """[K7] They may have a long countdown."""
    history.world.plans = [plan]
    history.write(Job("queued", "b", first_reserved=5, reserved=9, late_until=history.world.server.wall() + 9000))
    assert history.receive("b", 9).retention == pytest.approx(9000 + 3600, abs=LEASE)
    history.receive("b", 5)
    assert [run.id for run in history.world.rules.runs] == ["b"]


def test_run_that_stands_for_another_message_answers_it_after_retries(installation: Installation) -> None:
    """[C40] The one whose reservation had expired runs; the other one is answered, though it was retried."""
    history = History(installation, "three at once")
    history.write(Job("queued", "b", reserved=9))
    history.world.plans = ["retry", "retry"]
    job = history.receive("a", 5)
    assert (job.id, job.merged_id) == ("a", "b")
    assert history.receive("b", 9).id == "a"
    assert history.world.results.get_task_meta("b")["result"] == "a"
    history.world.close()


def test_replaced_jobs_stay_replaced_when_a_message_without_a_reservation_runs(history: History) -> None:
    """[K4] By ``send_task``, or one whose reservation is over; the newest job has a run of its own, with its arguments."""
    history.write(Job("queued", "c", first_reserved=5, reserved=9))
    history.world.plans = ["fail"]
    for id, reserved in (("plain", 0), ("a", 5), ("b", 7), ("c", 9), ("a", 5)):
        history.receive(id, reserved)
    assert [run.id for run in history.world.rules.runs] == ["plain", "c"]


@pytest.mark.parametrize("scene", ["replaced", "three at once"])
@pytest.mark.parametrize("there", [True, False])
def test_overtaken_message_takes_the_later_result_or_runs_if_it_is_counted_on(
    installation: Installation, scene: str, there: bool
) -> None:
    """[K6] As one that is replaced does: a chord that counts on it doesn't fail. Where nothing is replaced, each takes it: the
    later submission was the same job."""
    history = History(installation, scene)
    results = history.world.results
    history.write(Job("done", "b", last_success=9, outcome="success", retention=900.0), 800.0)
    if there:
        results.store("b", "SUCCESS", "b")
    history.receive("a", 5, counted=True)
    assert results.get_task_meta("a") == {"status": "SUCCESS", "result": "b" if there else "a"}
    history.receive("late", 5)
    assert results.get_task_meta("late") == (
        {"status": "REVOKED", "result": "a later submission of the same job was run"}
        if scene == "replaced"
        else results.get_task_meta("a")
    )
    history.world.close()


def test_message_that_follows_a_result_that_is_gone_is_run(history: History) -> None:
    history.write(Job("done", "b", outcome="success", retention=900.0, ttl=900.0), 900.0)
    assert history.receive("a", 9999).id == "a"


def test_ttl_of_a_job_that_is_unique_until_expired_counts_from_its_submission(installation: Installation) -> None:
    """The time in the queue and that of the run are gone."""
    history = History(installation, "until it is expired")
    world = history.world
    world.plans = ["long"]
    assert history.receive("a", int((world.server.wall() - 30.0) * 1_000_000)).ttl == pytest.approx(10.0, abs=0.2)
    world.close()


@pytest.mark.parametrize(("scene", "key"), [("each one", ""), ("until the start", ":run")])
def test_message_that_was_overtaken_has_a_run_of_its_own_where_each_counts(
    scene: str, key: str, installation: Installation
) -> None:
    history = History(installation, scene)
    history.write(Job("queued", "b"), key=key)
    for id in ("a", "b"):
        history.receive(id, 0)
    assert [run.id for run in history.world.rules.runs] == ["a", "b"]
    history.world.close()

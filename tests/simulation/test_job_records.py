"""The record of a run, and late messages: deterministic histories in the job world."""

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


class JobHistory:
    """A job world without random events; the test sends the messages."""

    def __init__(self, installation: Installation, scene: str) -> None:
        self.world = JobWorld(1, installation, scene=scene)
        self.world.plans = []

    def write(self, job: Job, lease: float = LEASE, key: str = "") -> None:
        """Write a record before the first message."""
        process = self.world.web[0]
        job_record = JobRecord(process.locks.record(self.world.key + key, name="t"))
        process.thread("writer", partial(job_record.put, None, job, lease))
        self.world.scheduler.run_until(self.world.is_quiet, 1000.0)

    def receive(self, id: str, reserved: int, *, counted: bool = False) -> Job:
        """Deliver a message to a worker. Returns the job's record after the run."""
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
def history(installation: Installation) -> Iterator[JobHistory]:
    history = JobHistory(installation, "replaced")
    yield history
    history.world.close()


def test_successful_run_makes_earlier_submissions_outdated(history: JobHistory) -> None:
    """[C30] Its record has the time of their reservation."""
    assert history.receive("a", 7).last_success == 7


def test_failed_run_makes_no_submission_outdated(history: JobHistory) -> None:
    history.world.plans = ["fail"]
    assert history.receive("a", 7).last_success == 0


def test_failed_run_still_replaces_earlier_submissions(history: JobHistory) -> None:
    """A replaced message isn't run later with old arguments."""
    history.write(Job("queued", "b", first_reserved=5, reserved=9))
    history.world.plans = ["fail"]
    job = history.receive("b", 9)
    assert (job.first_reserved, job.reserved, job.outcome) == (5, 9, "failure")
    assert history.receive("a", 5).id == "b"
    assert history.world.results.get_state("a") == "REVOKED"


@pytest.mark.parametrize("plan", ["success", "fail"])
def test_record_of_a_run_is_kept_until_the_replaced_messages_have_arrived(history: JobHistory, plan: str) -> None:
    """[K7] Those may have a long countdown."""
    history.world.plans = [plan]
    history.write(Job("queued", "b", first_reserved=5, reserved=9, late_until=history.world.server.wall() + 9000))
    assert history.receive("b", 9).retention == pytest.approx(9000 + 3600, abs=LEASE)
    history.receive("b", 5)
    assert [run.id for run in history.world.rules.runs] == ["b"]


def test_run_that_merges_another_message_stores_its_result_after_retries(installation: Installation) -> None:
    """[C40] The message with the expired reservation runs; the other one gets its result, also after retries."""
    history = JobHistory(installation, "three at once")
    history.write(Job("queued", "b", reserved=9))
    history.world.plans = ["retry", "retry"]
    job = history.receive("a", 5)
    assert (job.id, job.merged_id) == ("a", "b")
    assert history.receive("b", 9).id == "a"
    assert history.world.results.get_task_meta("b")["result"] == "a"
    history.world.close()


def test_replaced_jobs_stay_replaced_when_a_message_without_a_reservation_runs(history: JobHistory) -> None:
    """[K4] A message from ``send_task``, or one with an expired reservation; the newest job has a run of its own."""
    history.write(Job("queued", "c", first_reserved=5, reserved=9))
    history.world.plans = ["fail"]
    for id, reserved in (("plain", 0), ("a", 5), ("b", 7), ("c", 9), ("a", 5)):
        history.receive(id, reserved)
    assert [run.id for run in history.world.rules.runs] == ["plain", "c"]


@pytest.mark.parametrize("scene", ["replaced", "three at once"])
@pytest.mark.parametrize("there", [True, False])
def test_overtaken_message_gets_the_later_result_or_runs_if_a_chord_needs_it(
    installation: Installation, scene: str, there: bool
) -> None:
    """[K6] Like a replaced message, so that a chord doesn't fail. Without "replace", each overtaken message gets the
    later result, since the later submission was the same job."""
    history = JobHistory(installation, scene)
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


def test_message_after_a_lost_result_is_run(history: JobHistory) -> None:
    history.write(Job("done", "b", outcome="success", retention=900.0, ttl=900.0), 900.0)
    assert history.receive("a", 9999).id == "a"


def test_ttl_of_a_job_that_is_unique_until_expired_counts_from_its_submission(installation: Installation) -> None:
    """The times in the queue and of the run are subtracted."""
    history = JobHistory(installation, "until it is expired")
    world = history.world
    world.plans = ["long"]
    assert history.receive("a", int((world.server.wall() - 30.0) * 1_000_000)).ttl == pytest.approx(10.0, abs=0.2)
    world.close()


@pytest.mark.parametrize(("scene", "key"), [("each submission runs", ""), ("until the start", ":run")])
def test_overtaken_message_has_its_own_run_where_each_submission_counts(
    scene: str, key: str, installation: Installation
) -> None:
    history = JobHistory(installation, scene)
    history.write(Job("queued", "b"), key=key)
    for id in ("a", "b"):
        history.receive(id, 0)
    assert [run.id for run in history.world.rules.runs] == ["a", "b"]
    history.world.close()

"""The decision tables: what is done with a message or a submission, given the job's record."""

from __future__ import annotations

from celery_locks.decisions import Submit, Verdict, at_start, at_submit
from celery_locks.header import Header, Message
from celery_locks.job import Job
from django_redis_locks import Record


def job(state: str, id: str = "me", *, lease_left: float = 10.0, **about: object) -> Job:
    return Job(state, id, record=Record(500, {}, lease_left), **about)


def message(tries: int = 0, *, redelivered: bool = False, **header: object) -> Message:
    return Message("me", tries, redelivered, Header("k", "me", **header) if header else None)


SENT = message(reserved=5)
REDELIVERED = message(redelivered=True, reserved=5)
REPLACED = {"first_reserved": 5, "reserved": 9}
SUCCESS, FAILURE = {"outcome": "success"}, {"outcome": "failure"}
KEPT = {"retention": 60, "lease_left": 10}

START: dict[str, tuple[Job | None, Message, Verdict]] = {
    "[C40] [C46] [C49] no record, no header": (None, message(), Verdict.RUN),
    "queued, own": (job("queued"), SENT, Verdict.RUN),
    "[C13] the message precedes the confirmation": (job("reserved"), SENT, Verdict.RUN),
    "[C14] the broker had taken it": (job("unsure"), SENT, Verdict.RUN),
    "[C32] prefetched, never started": (job("queued"), REDELIVERED, Verdict.RUN),
    "replaced": (job("queued", "new", **REPLACED), SENT, Verdict.SUPERSEDED),
    "replaced, between two others": (job("queued", "new", **REPLACED), message(reserved=7), Verdict.SUPERSEDED),
    "replaced by a job that is being sent": (job("reserved", "new", first_reserved=5), SENT, Verdict.SENDING),
    "replaced by a job that may not be sent": (job("unsure", "new", **REPLACED), SENT, Verdict.RUN),
    "replaced by a job that runs": (job("running", "new", **REPLACED), SENT, Verdict.SUPERSEDED),
    "replaced by a job that failed": (job("done", "new", **REPLACED, **FAILURE), SENT, Verdict.SUPERSEDED),
    "replaced, its twin runs": (job("running", "new", **REPLACED, merged_id="me"), SENT, Verdict.REDELIVER),
    "[C29] a copy of an earlier try": (job("queued", retries=1), REDELIVERED, Verdict.STALE),
    "the next try": (job("queued", retries=1), message(1, reserved=5), Verdict.RUN),
    "[K7] its place is being taken": (job("reserved", first_reserved=5), SENT, Verdict.SENDING),
    "[K7] its place may have been taken": (job("unsure", **REPLACED), SENT, Verdict.RUN),
    "[K7] its place was taken": (job("queued", **REPLACED), SENT, Verdict.STALE),
    "[K7] its place was taken, and that one runs": (job("running", **REPLACED), SENT, Verdict.STALE),
    "[K7] its place was taken by one that failed": (job("done", **REPLACED, **FAILURE), SENT, Verdict.STALE),
    "[K7] it has taken the place": (job("queued", **REPLACED), message(reserved=9), Verdict.RUN),
    "[C40] the reservation had expired": (job("queued", "new", reserved=9), SENT, Verdict.RUN),
    "it had expired before a replaced one": (job("queued", "new", first_reserved=6, reserved=9), SENT, Verdict.RUN),
    "the twin waits for its retry": (job("queued", "other", retries=1, merged_id="me"), SENT, Verdict.REDELIVER),
    "the twin runs": (job("running", "other", run_id="r", merged_id="me"), SENT, Verdict.REDELIVER),
    "another job waits for its retry": (job("queued", "other", retries=1), SENT, Verdict.CONFLICT),
    "another job runs": (job("running", "other", run_id="r"), SENT, Verdict.CONFLICT),
    "[C47] the submitting run goes on": (
        job("running", "other", run_id="r"),
        message(submitted_by="r"),
        Verdict.FOLLOWING,
    ),
    "[C47] another run goes on": (job("running", "other", run_id="r2"), message(submitted_by="r"), Verdict.CONFLICT),
    "[C2] the previous try unwinds": (job("running", retries=0), message(1, reserved=5), Verdict.FOLLOWING),
    "a task that replaces itself": (job("running", run_id="r"), message(submitted_by="r"), Verdict.FOLLOWING),
    "[C28] a copy of the live run": (job("running"), SENT, Verdict.REDELIVER),
    "[C31] redelivered, the dead node's lease lives": (job("running"), REDELIVERED, Verdict.REDELIVER),
    "an old copy of a retry that runs": (job("running", retries=2), message(1, reserved=5), Verdict.REDELIVER),
    "[C30] done": (job("done", **SUCCESS), SENT, Verdict.ENDED),
    "[C30] failed, redelivered": (job("done", **FAILURE), message(redelivered=True), Verdict.ENDED),
    "[C28] failed, a parked copy": (job("done", **FAILURE), message(reserved=5, is_copy=True), Verdict.ENDED),
    "[K2] done, its result isn't stored": (job("done", process="p", **SUCCESS), SENT, Verdict.UNSTORED),
    "[K2] failed, the same, redelivered": (job("done", process="p", **FAILURE), REDELIVERED, Verdict.UNSTORED),
    "[C28] broken off, redelivered": (job("done"), REDELIVERED, Verdict.RUN),
    "failed, and sent again by hand": (job("done", **FAILURE), message(), Verdict.RUN),
    "[C40] run as a twin": (job("done", "other", merged_id="me", **SUCCESS), message(), Verdict.ANSWERED),
    "[K2] its twin was broken off, and rests": (
        job("done", "other", merged_id="me", min_hold_left=55, **KEPT),
        SENT,
        Verdict.RUN,
    ),
    "another is done, its answer counts": (
        job("done", "other", ttl=60, **KEPT, **SUCCESS),
        message(),
        Verdict.ANSWERED,
    ),
    "another is done, its answer is old": (job("done", "other", ttl=30, **KEPT, **SUCCESS), message(), Verdict.RUN),
    "[C30] a late copy, after the next job": (job("queued", "new", last_success=5), SENT, Verdict.OVERTAKEN),
    "replaced, its successor is done": (job("done", "new", last_success=9), SENT, Verdict.OVERTAKEN),
    "later than the jobs that ran": (job("done", "old", last_success=5), message(reserved=9), Verdict.RUN),
    "a retry of the running job": (job("running", last_success=5), message(1, reserved=5), Verdict.FOLLOWING),
    "[C34] minimum hold": (job("done", "other", min_hold_left=55, **KEPT), message(), Verdict.CONFLICT),
    "another is done": (job("done", "other", **KEPT, **SUCCESS), message(), Verdict.RUN),
}

SUBMIT: dict[str, tuple[Job | None, Submit]] = {
    "no record": (None, Submit.RESERVE),
    "being sent": (job("reserved"), Submit.AWAIT),
    "perhaps sent": (job("unsure"), Submit.REPEAT),
    "queued": (job("queued"), Submit.DUPLICATE),
    "running": (job("running"), Submit.DUPLICATE),
    "minimum hold": (job("done", min_hold_left=55, **KEPT), Submit.DUPLICATE),
    "its answer counts": (job("done", ttl=55, **KEPT, **SUCCESS), Submit.DUPLICATE),
    "done": (job("done", **KEPT, **SUCCESS), Submit.RESERVE),
    "[C60] failed": (job("done", **KEPT, **FAILURE), Submit.RESERVE),
}


def test_at_start_returns_the_verdict_of_each_row() -> None:
    found = {row: at_start(record, received) for row, (record, received, _) in START.items()}
    assert found == {row: verdict for row, (_, _, verdict) in START.items()}


def test_at_submit_returns_the_verdict_of_each_row() -> None:
    found = {row: at_submit(record) for row, (record, _) in SUBMIT.items()}
    assert found == {row: verdict for row, (_, verdict) in SUBMIT.items()}

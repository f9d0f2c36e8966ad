"""The decision tables: the verdict on a message or a submission, by the job's record."""

from __future__ import annotations

from celery_locks.decisions import Submit, Verdict, at_start, at_submit
from celery_locks.header import Header, Message
from celery_locks.job import Job
from django_redis_locks import Record


def job(state: str, id: str = "me", *, lease_left: float = 10.0, **about: object) -> Job:
    return Job(state, id, record=Record(500, {}, lease_left), **about)


def message(tries: int = 0, *, redelivered: bool = False, **header: object) -> Message:
    return Message("me", tries, redelivered, Header("k", "me", **header) if header else None)


RESERVED = message(reserved=5)
REDELIVERED = message(redelivered=True, reserved=5)
REPLACED = {"first_reserved": 5, "reserved": 9}
SUCCESS, FAILURE = {"outcome": "success"}, {"outcome": "failure"}
KEPT = {"retention": 60, "lease_left": 10}

START: dict[str, tuple[Job | None, Message, Verdict]] = {
    "[C40] [C46] [C49] no record, no header": (None, message(), Verdict.RUN),
    "queued, own": (job("queued"), RESERVED, Verdict.RUN),
    "[C13] the message precedes the confirmation": (job("reserved"), RESERVED, Verdict.RUN),
    "[C14] the broker has the message": (job("unsure"), RESERVED, Verdict.RUN),
    "[C32] prefetched, never started": (job("queued"), REDELIVERED, Verdict.RUN),
    "replaced": (job("queued", "new", **REPLACED), RESERVED, Verdict.SUPERSEDED),
    "replaced, between two others": (job("queued", "new", **REPLACED), message(reserved=7), Verdict.SUPERSEDED),
    "replaced by a job that is being sent": (job("reserved", "new", first_reserved=5), RESERVED, Verdict.SENDING),
    "replaced by a job that may not be sent": (job("unsure", "new", **REPLACED), RESERVED, Verdict.RUN),
    "replaced by a job that runs": (job("running", "new", **REPLACED), RESERVED, Verdict.SUPERSEDED),
    "replaced by a job that failed": (job("done", "new", **REPLACED, **FAILURE), RESERVED, Verdict.SUPERSEDED),
    "replaced, its twin runs": (job("running", "new", **REPLACED, merged_id="me"), RESERVED, Verdict.REDELIVER),
    "[C29] a copy of an earlier try": (job("queued", retries=1), REDELIVERED, Verdict.STALE),
    "the next try": (job("queued", retries=1), message(1, reserved=5), Verdict.RUN),
    "[K7] it is being resent": (job("reserved", first_reserved=5), RESERVED, Verdict.SENDING),
    "[K7] it may have been resent": (job("unsure", **REPLACED), RESERVED, Verdict.RUN),
    "[K7] it was resent": (job("queued", **REPLACED), RESERVED, Verdict.STALE),
    "[K7] it was resent, and that message runs": (job("running", **REPLACED), RESERVED, Verdict.STALE),
    "[K7] it was resent, and that message failed": (job("done", **REPLACED, **FAILURE), RESERVED, Verdict.STALE),
    "[K7] the resent message": (job("queued", **REPLACED), message(reserved=9), Verdict.RUN),
    "[C40] the reservation had expired": (job("queued", "new", reserved=9), RESERVED, Verdict.RUN),
    "it had expired before a replaced one": (job("queued", "new", first_reserved=6, reserved=9), RESERVED, Verdict.RUN),
    "the twin waits for its retry": (job("queued", "other", retries=1, merged_id="me"), RESERVED, Verdict.REDELIVER),
    "the twin runs": (job("running", "other", run_id="r", merged_id="me"), RESERVED, Verdict.REDELIVER),
    "another job waits for its retry": (job("queued", "other", retries=1), RESERVED, Verdict.CONFLICT),
    "another job runs": (job("running", "other", run_id="r"), RESERVED, Verdict.CONFLICT),
    "[C47] the submitting run continues": (
        job("running", "other", run_id="r"),
        message(submitted_by="r"),
        Verdict.FOLLOWING,
    ),
    "[C47] another run continues": (job("running", "other", run_id="r2"), message(submitted_by="r"), Verdict.CONFLICT),
    "[C2] the previous try unwinds": (job("running", retries=0), message(1, reserved=5), Verdict.FOLLOWING),
    "a task that replaces itself": (job("running", run_id="r"), message(submitted_by="r"), Verdict.FOLLOWING),
    "[C28] a copy of the live run": (job("running"), RESERVED, Verdict.REDELIVER),
    "[C31] redelivered, the dead node's lease lives": (job("running"), REDELIVERED, Verdict.REDELIVER),
    "an old copy of a retry that runs": (job("running", retries=2), message(1, reserved=5), Verdict.REDELIVER),
    "[C30] done": (job("done", **SUCCESS), RESERVED, Verdict.ENDED),
    "[C30] failed, redelivered": (job("done", **FAILURE), message(redelivered=True), Verdict.ENDED),
    "[C28] failed, a redelivered copy": (job("done", **FAILURE), message(reserved=5, is_copy=True), Verdict.ENDED),
    "[K2] done, its result isn't stored": (job("done", process="p", **SUCCESS), RESERVED, Verdict.UNSTORED),
    "[K2] failed, the same, redelivered": (job("done", process="p", **FAILURE), REDELIVERED, Verdict.UNSTORED),
    "[C28] interrupted, redelivered": (job("done"), REDELIVERED, Verdict.RUN),
    "failed, and sent again by hand": (job("done", **FAILURE), message(), Verdict.RUN),
    "[C40] run as a twin": (job("done", "other", merged_id="me", **SUCCESS), message(), Verdict.ANSWERED),
    "[K2] its twin was interrupted, minimum hold": (
        job("done", "other", merged_id="me", min_hold_left=55, **KEPT),
        RESERVED,
        Verdict.RUN,
    ),
    "another is done, its result is valid": (
        job("done", "other", ttl=60, **KEPT, **SUCCESS),
        message(),
        Verdict.ANSWERED,
    ),
    "another is done, its result is expired": (job("done", "other", ttl=30, **KEPT, **SUCCESS), message(), Verdict.RUN),
    "[C30] a late copy, after the next job": (job("queued", "new", last_success=5), RESERVED, Verdict.OVERTAKEN),
    "replaced, its successor is done": (job("done", "new", last_success=9), RESERVED, Verdict.OVERTAKEN),
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
    "its result is valid": (job("done", ttl=55, **KEPT, **SUCCESS), Submit.DUPLICATE),
    "done": (job("done", **KEPT, **SUCCESS), Submit.RESERVE),
    "[C60] failed": (job("done", **KEPT, **FAILURE), Submit.RESERVE),
}


def test_at_start_returns_the_verdict_of_each_row() -> None:
    found = {row: at_start(record, received) for row, (record, received, _) in START.items()}
    assert found == {row: verdict for row, (_, _, verdict) in START.items()}


def test_at_submit_returns_the_verdict_of_each_row() -> None:
    found = {row: at_submit(record) for row, (record, _) in SUBMIT.items()}
    assert found == {row: verdict for row, (_, verdict) in SUBMIT.items()}

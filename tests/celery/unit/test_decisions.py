"""What is done with a job, by what its record says: every row of the two tables, without a server."""

from __future__ import annotations

import pytest

from celery_locks.decisions import Submit, Verdict, at_start, at_submit
from celery_locks.job import Job
from celery_locks.message import Header, Message
from django_redis_locks import Record


def job(state: str, id: str = "me", *, version: int = 500, lease_left: float = 10.0, **about: object) -> Job:
    return Job(state, id, record=Record(version, {}, lease_left), **about)


def message(tries: int = 0, *, redelivered: bool = False, **header: object) -> Message:
    return Message("me", tries, redelivered, Header("k", "me", **header) if header else None)


START = {
    "[C40] [C46] [C49] nothing: adopted, never dropped": (None, message(), Verdict.RUN),
    "queued, mine": (job("queued"), message(reserved=5), Verdict.RUN),
    "[C13] its message came before its confirmation": (job("reserved"), message(reserved=5), Verdict.RUN),
    "[C14] the broker had taken it": (job("unsure"), message(reserved=5), Verdict.RUN),
    "[C32] prefetched, never started": (job("queued"), message(redelivered=True, reserved=5), Verdict.RUN),
    "replaced": (job("queued", "new", first=5, reserved=9), message(reserved=5), Verdict.SUPERSEDED),
    "replaced, in the middle of a row": (
        job("queued", "new", first=5, reserved=9),
        message(reserved=7),
        Verdict.SUPERSEDED,
    ),
    "replaced by one that is being sent": (job("reserved", "new", first=5), message(reserved=5), Verdict.SENDING),
    "replaced by one that perhaps wasn't sent": (
        job("unsure", "new", first=5, reserved=9),
        message(reserved=5),
        Verdict.RUN,
    ),
    "replaced by one that runs": (job("running", "new", first=5, reserved=9), message(reserved=5), Verdict.SUPERSEDED),
    "replaced by one that has failed": (
        job("done", "new", first=5, reserved=9, outcome="failure"),
        message(reserved=5),
        Verdict.SUPERSEDED,
    ),
    "replaced, and its successor stands for it": (
        job("running", "new", first=5, reserved=9, twin="me"),
        message(reserved=5),
        Verdict.PARK,
    ),
    "[C29] a copy of a try that is over": (
        job("queued", tries=1),
        message(redelivered=True, reserved=5),
        Verdict.STALE,
    ),
    "its next try": (job("queued", tries=1), message(1, reserved=5), Verdict.RUN),
    "[C40] my reservation had expired": (job("queued", "new", reserved=9), message(reserved=5), Verdict.RUN),
    "it had expired before a row of replaced ones": (
        job("queued", "new", first=6, reserved=9),
        message(reserved=5),
        Verdict.RUN,
    ),
    "held between the tries of one that stands for it": (
        job("queued", "other", tries=1, twin="me"),
        message(reserved=5),
        Verdict.PARK,
    ),
    "one that stands for it runs": (job("running", "other", run="r", twin="me"), message(reserved=5), Verdict.PARK),
    "held between another job's tries": (job("queued", "other", tries=1), message(reserved=5), Verdict.CONFLICT),
    "another one runs": (job("running", "other", run="r"), message(reserved=5), Verdict.CONFLICT),
    "[C47] the run that sent me goes on": (job("running", "other", run="r"), message(after="r"), Verdict.FOLLOWING),
    "[C47] another run goes on": (job("running", "other", run="r2"), message(after="r"), Verdict.CONFLICT),
    "[C2] my predecessor unwinds": (job("running", tries=0), message(1, reserved=5), Verdict.FOLLOWING),
    "a task that replaces itself": (job("running", run="r"), message(after="r"), Verdict.FOLLOWING),
    "[C28] a copy of my live run": (job("running"), message(reserved=5), Verdict.PARK),
    "[C31] redelivered while the lease of a dead node is alive": (
        job("running"),
        message(redelivered=True, reserved=5),
        Verdict.PARK,
    ),
    "an old copy of a retry that runs": (job("running", tries=2), message(1, reserved=5), Verdict.PARK),
    "[C30] done, mine": (job("done", outcome="success"), message(reserved=5), Verdict.ENDED),
    "[C30] failed, mine, redelivered": (job("done", outcome="failure"), message(redelivered=True), Verdict.ENDED),
    "[C28] failed, mine, a copy that was parked": (
        job("done", outcome="failure"),
        message(reserved=5, copy=True),
        Verdict.ENDED,
    ),
    "[C28] broken off, mine, redelivered": (job("done"), message(redelivered=True, reserved=5), Verdict.RUN),
    "failed, and sent again by hand": (job("done", outcome="failure"), message(), Verdict.RUN),
    "[C40] run as my twin": (job("done", "other", twin="me", outcome="success"), message(), Verdict.ANSWERED),
    "done, and it is still the answer": (
        job("done", "other", keep=60, ttl=60, lease_left=10, outcome="success"),
        message(),
        Verdict.ANSWERED,
    ),
    "done, and no longer the answer": (
        job("done", "other", keep=60, ttl=30, lease_left=10, outcome="success"),
        message(),
        Verdict.RUN,
    ),
    "[C30] a late copy, after the next job": (job("queued", "new", past=5), message(reserved=5), Verdict.OVERTAKEN),
    "replaced, and its successor is done": (job("done", "new", past=9), message(reserved=5), Verdict.OVERTAKEN),
    "a later one than those that were run": (job("done", "old", past=5), message(reserved=9), Verdict.RUN),
    "a retry of the job that is running": (job("running", past=5), message(1, reserved=5), Verdict.FOLLOWING),
    "[C34] at rest": (job("done", "other", keep=60, rest=55, lease_left=10), message(), Verdict.CONFLICT),
    "done, another one": (job("done", "other", keep=60, lease_left=10, outcome="success"), message(), Verdict.RUN),
}


@pytest.mark.parametrize(("found", "me", "verdict"), START.values(), ids=list(START))
def test_at_start(found: Job | None, me: Message, verdict: Verdict) -> None:
    assert at_start(found, me) is verdict


SUBMIT = {
    "nothing": (None, Submit.RESERVE),
    "being sent": (job("reserved"), Submit.AWAIT),
    "perhaps sent": (job("unsure"), Submit.REPEAT),
    "queued": (job("queued"), Submit.DUPLICATE),
    "running": (job("running"), Submit.DUPLICATE),
    "at rest": (job("done", keep=60, rest=55, lease_left=10), Submit.DUPLICATE),
    "answered": (job("done", keep=60, ttl=55, lease_left=10, outcome="success"), Submit.DUPLICATE),
    "done": (job("done", keep=60, lease_left=10, outcome="success"), Submit.RESERVE),
    "[C60] failed": (job("done", keep=60, lease_left=10, outcome="failure"), Submit.RESERVE),
}


@pytest.mark.parametrize(("found", "verdict"), SUBMIT.values(), ids=list(SUBMIT))
def test_at_submit(found: Job | None, verdict: Submit) -> None:
    assert at_submit(found) is verdict

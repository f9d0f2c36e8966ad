"""Decides at a job's submission and at its start what to do, as pure functions of the job's record."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from .job import WAITING

if TYPE_CHECKING:
    from .header import Header, Message
    from .job import Job


class Verdict(Enum):
    """What a worker does with a message. The values are logged as the reason."""

    RUN = "run it"
    ENDED = "it was run to its end before"
    UNSTORED = "it was run, and its result isn't known to be stored: run it again if it never is"
    SUPERSEDED = "a newer submission replaced it"
    ANSWERED = "another message of the same job was run; its result is the answer"
    OVERTAKEN = "a later submission of the same job was run since"
    FOLLOWING = "the run before it is about to end: wait for that"
    SENDING = "a newer submission is being sent, which replaces it if that succeeds: wait for that"
    STALE = "it is a copy of an earlier try, or was replaced by another message of its job"
    REDELIVER = "another copy of it runs, or a run that completes it too: redeliver it when that lease would end"
    CONFLICT = "another job has the key"


def at_start(job: Job | None, message: Message) -> Verdict:
    """Decide what a worker does with a message, given the job in the record of its key.

    A message without a record is run, so an expired record never costs a job. A message whose own run is active
    elsewhere is neither run nor dropped, since the process of that run may still die.
    """
    if job is None:
        return Verdict.RUN
    own = job.id == message.id
    if own and gives_way(job, message.header):
        return Verdict.SENDING if job.state == "reserved" else Verdict.STALE
    verdict = None if own or job.merged_id == message.id else _replaced_or_overtaken(job, message)
    if verdict is not None:
        return verdict
    if job.state in WAITING:
        return _queued(job, message)
    if job.state == "running":
        sent_by_it = (
            message.header is not None
            and message.header.submitted_by != ""
            and message.header.submitted_by == job.run_id
        )
        if sent_by_it or (own and job.retries < message.retries):
            return Verdict.FOLLOWING
        return Verdict.REDELIVER if own or job.merged_id == message.id else Verdict.CONFLICT
    return _done(job, message)


def _replaced_or_overtaken(job: Job, message: Message) -> Verdict | None:
    """The verdict on the message of another job, if a later submission replaced it or was run before it; else None."""
    reserved = 0 if message.header is None else message.header.reserved
    if 0 < reserved <= job.last_success:
        return Verdict.OVERTAKEN
    if gives_way(job, message.header):
        return Verdict.SENDING if job.state == "reserved" else Verdict.SUPERSEDED
    return None


def gives_way(job: Job, header: Header | None) -> bool:
    """Whether a later message replaced this one, of the same job or of another one."""
    reserved = 0 if header is None else header.reserved
    # "unsure": the later message may not exist, so it replaces nothing
    return 0 < job.first_reserved <= reserved < (job.reserved or job.stored_record.version) and job.state != "unsure"


def _queued(job: Job, message: Message) -> Verdict:
    if job.id == message.id:
        return Verdict.STALE if message.retries < job.retries else Verdict.RUN
    if job.retries:  # the key is kept between two tries of another job
        return Verdict.REDELIVER if job.merged_id == message.id else Verdict.CONFLICT
    return Verdict.RUN  # the queued message finds at its start that its job was run


def _done(job: Job, message: Message) -> Verdict:
    if job.id == message.id:
        if not job.outcome:
            return Verdict.RUN  # its run was interrupted, and this is the redelivery
        # An operator may send a failed job again under its id, which is run; a copy of its message is not
        copy = message.redelivered or (message.header is not None and message.header.is_copy)
        if job.outcome == "failure" and not copy:
            return Verdict.RUN
        return Verdict.UNSTORED if job.process else Verdict.ENDED
    if job.within_ttl or (job.merged_id == message.id and job.outcome):
        return Verdict.ANSWERED
    # If the run that would have completed this message too was interrupted, this message is run
    if job.within_min_hold and job.merged_id != message.id:
        return Verdict.CONFLICT
    return Verdict.RUN


class Submit(Enum):
    """What a submission finds in the record of its key."""

    RESERVE = "the key is free"
    AWAIT = "the same job is being sent"
    REPEAT = "the broker didn't confirm that it took the message: send the same one again"
    DUPLICATE = "the same job is queued, runs, or has the answer"


def at_submit(job: Job | None) -> Submit:
    """Decide what a new submission finds, given the job in the record of its key."""
    if job is None:
        return Submit.RESERVE
    if job.state == "reserved":
        return Submit.AWAIT
    if job.state == "unsure":
        return Submit.REPEAT
    if job.state == "done" and not (job.within_min_hold or job.within_ttl):
        return Submit.RESERVE
    return Submit.DUPLICATE

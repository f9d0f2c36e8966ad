"""What to do with a job, at its submission and at its start: pure functions of what its record says."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from .job import WAITING

if TYPE_CHECKING:
    from .header import Header, Message
    from .job import Job


class Verdict(Enum):
    """What a worker does with a message."""

    RUN = "run it"
    ENDED = "it was run to its end before"
    UNSTORED = "it was run, and its result isn't known to be stored: if that doesn't come, run it again"
    SUPERSEDED = "a newer submission replaced it"
    ANSWERED = "another message of the same job was run; its result is the answer"
    OVERTAKEN = "a later submission of the same job was run since"
    FOLLOWING = "its predecessor is about to end: wait for that"
    SENDING = "a newer submission is being sent, which replaces it if that succeeds: wait for that"
    STALE = "it is a copy of a try that is over, or another message of its job has taken its place"
    REDELIVER = "another copy of it runs, or one that stands for it: come again when its lease would end"
    CONFLICT = "another job has the key"


def at_start(job: Job | None, message: Message) -> Verdict:
    """Of a message that a worker received, by what the record of its key says.

    A message whose reservation is gone is run all the same: an expired record never costs a job. One whose own run goes
    on elsewhere is neither run nor dropped: that run may still die.
    """
    if job is None:
        return Verdict.RUN
    own = job.id == message.id
    if own and gives_way(job, message.header):
        return Verdict.SENDING if job.state == "reserved" else Verdict.STALE
    late = None if own or job.merged_id == message.id else _too_late(job, message)
    if late is not None:
        return late
    if job.state in WAITING:
        return _queued(job, message)
    if job.state == "running":
        sent_by_it = (
            message.header is not None and message.header.submitted_by != "" and message.header.submitted_by == job.run
        )
        if sent_by_it or (own and job.retries < message.retries):
            return Verdict.FOLLOWING
        return Verdict.REDELIVER if own or job.merged_id == message.id else Verdict.CONFLICT
    return _done(job, message)


def _too_late(job: Job, message: Message) -> Verdict | None:
    """It was replaced, or a later one was run."""
    reserved = 0 if message.header is None else message.header.reserved
    if 0 < reserved <= job.last_success:
        return Verdict.OVERTAKEN
    if gives_way(job, message.header):
        return Verdict.SENDING if job.state == "reserved" else Verdict.SUPERSEDED
    return None


def gives_way(job: Job, header: Header | None) -> bool:
    """Whether another message has taken the place of this one, of another job or of the same one."""
    reserved = 0 if header is None else header.reserved
    # one that is unsure may have no message: it replaces nothing
    return 0 < job.first <= reserved < (job.reserved or job.known.version) and job.state != "unsure"


def _queued(job: Job, message: Message) -> Verdict:
    if job.id == message.id:
        return Verdict.STALE if message.retries < job.retries else Verdict.RUN
    if job.retries:  # it is held between the tries of another job
        return Verdict.REDELIVER if job.merged_id == message.id else Verdict.CONFLICT
    return Verdict.RUN  # that one finds at its turn that it was run


def _done(job: Job, message: Message) -> Verdict:
    if job.id == message.id:
        if not job.outcome:
            return Verdict.RUN  # it was broken off, and here it is again
        # a failed job may be sent again under its own id, by hand; a copy of its message may not
        copy = message.redelivered or (message.header is not None and message.header.is_copy)
        if job.outcome == "failure" and not copy:
            return Verdict.RUN
        return Verdict.UNSTORED if job.process else Verdict.ENDED
    if job.answers or (job.merged_id == message.id and job.outcome):
        return Verdict.ANSWERED
    # a run for both that was interrupted leaves the job to this message, as it would to its own copy
    if job.in_min_hold and job.merged_id != message.id:
        return Verdict.CONFLICT
    return Verdict.RUN


class Submit(Enum):
    """What a submission finds."""

    RESERVE = "the key is free"
    AWAIT = "somebody sends the same job just now"
    REPEAT = "the broker didn't say whether it took the message: send the same one again"
    DUPLICATE = "the same job is queued, runs, or has the answer"


def at_submit(job: Job | None) -> Submit:
    """Of a new submission, by what the record of its key says."""
    if job is None:
        return Submit.RESERVE
    if job.state == "reserved":
        return Submit.AWAIT
    if job.state == "unsure":
        return Submit.REPEAT
    if job.state == "done" and not (job.in_min_hold or job.answers):
        return Submit.RESERVE
    return Submit.DUPLICATE

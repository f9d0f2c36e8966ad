"""What to do with a job, at its submission and at its start: pure functions of what its record says."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from .job import WAITING

if TYPE_CHECKING:
    from .job import Job
    from .message import Message


class Verdict(Enum):
    """What a worker does with a message."""

    RUN = "run it"
    ENDED = "it was run to its end before"
    SUPERSEDED = "a newer submission replaced it"
    ANSWERED = "another message of the same job was run; its result is the answer"
    OVERTAKEN = "a later submission of the same job was run since"
    FOLLOWING = "its predecessor is about to end: wait for that"
    PARK = "another copy of this very message runs: come again when its lease would end"
    CONFLICT = "another job has the key"


def at_start(job: Job | None, me: Message) -> Verdict:
    """Of a message that a worker received, by what the record of its key says.

    A message whose reservation is gone is run all the same: an expired record never costs a job. One whose own run goes
    on elsewhere is neither run nor dropped: that run may still die.
    """
    if job is None:
        return Verdict.RUN
    mine = job.id == me.id
    if not mine and me.header is not None and 0 < me.header.reserved <= job.past and job.twin != me.id:
        return Verdict.OVERTAKEN
    if job.state in WAITING:
        return Verdict.RUN if mine else _queued_other(job, me)
    if job.state == "running":
        sent_by_it = me.header is not None and me.header.after != "" and me.header.after == job.run
        if sent_by_it or (mine and job.tries < me.tries):
            return Verdict.FOLLOWING
        return Verdict.PARK if mine else Verdict.CONFLICT
    return _done(job, me)


def _queued_other(job: Job, me: Message) -> Verdict:
    reserved = 0 if me.header is None else me.header.reserved
    if reserved and job.first and job.first <= reserved < (job.reserved or job.known.version):
        if job.state == "reserved":
            return Verdict.FOLLOWING  # whether it is replaced is known when the other message is sent
        return Verdict.SUPERSEDED if job.state == "queued" else Verdict.RUN
    if job.tries:
        return Verdict.CONFLICT  # it is held between the tries of another job
    return Verdict.RUN  # that one finds at its turn that it was run


def _done(job: Job, me: Message) -> Verdict:
    if job.id == me.id:
        # a failed job may be sent again under its own id, by hand; a copy of its message may not
        again = job.outcome != "success" and not me.redelivered
        return Verdict.RUN if again else Verdict.ENDED
    if job.twin == me.id or job.answers:
        return Verdict.ANSWERED
    if job.resting:
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
    if job.state == "done" and not (job.resting or job.answers):
        return Submit.RESERVE
    return Submit.DUPLICATE

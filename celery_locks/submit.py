"""``delay()`` and ``apply_async()``: send one message for a job, however often it is submitted.

A submission reserves the key, sends the message and confirms the reservation. Another one that finds a reservation
waits until it is confirmed or abandoned, so a returned result always belongs to a message that was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery.utils import uuid

from django_redis_locks import LockBackendError

from . import beat, signals
from .header import HEADER, Header, header_in
from .job import VERSION, Job, parse_job
from .job_record import LISTED_AS_QUEUED, SENDING_LEASE, record_of
from .keys import key_of
from .options import is_unique_until_start
from .run_lock import Successor
from .submission import (
    Publish,
    Submission,
    forget_duplicate,
    is_known_duplicate,
    is_void,
    mark,
    result_of_existing,
)
from .times import AT_ONCE, times_of

if TYPE_CHECKING:
    from celery.result import AsyncResult

    from .options import TaskOptions


def is_usual(task: TaskOptions) -> bool:
    """Whether a submission without options has none by the task or by its caller: a run of the task, or beat."""
    in_run, ticking = task.request_stack.top is not None, beat.current(task.name) is not None
    return not (in_run or ticking or task.lock_on_duplicate == "queue" or task.expires is not None)


def submit_usual(
    task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any], send: Callable[..., AsyncResult[Any]]
) -> AsyncResult[Any]:
    """Submit a job without options of ``apply_async``, if ``is_usual``.

    As a rule its key is free, and then this function is the whole submission. Otherwise ``Submission`` continues.

    Args:
        task, args, kwargs: the call.
        send: Celery's own ``apply_async`` with these arguments. It takes ``task_id``, ``headers`` and further options.

    Raises:
        DuplicateTask, LockKeyError, LockBackendError, TypeError: as the options say.
    """
    key, _ = key_of(task, args, kwargs, None)
    id = uuid()

    def unusual() -> Submission:
        return Submission(task, Header(key, id), publisher({}, send), {}, id_given=False)

    known_duplicate = is_known_duplicate(key)
    if known_duplicate and task.lock_on_duplicate != "existing":
        return unusual().result()
    job_record = record_of(task, key)
    ref = job_record.ref

    # Reserve the key, or find the job that has it
    fields = {"v": VERSION, "state": "reserved", "id": id}
    try:
        if known_duplicate and (job := job_record.peek()) is not None:
            if job.queued_at_once and not is_void(task, job):
                return result_of_existing(task, key, job)
            return unusual().result(job_record.read())
        reserved = ref.put(None, fields, SENDING_LEASE, show_in_admin=LISTED_AS_QUEUED)
    except LockBackendError as failure:
        submission = unusual()
        if submission.needs_store:
            raise
        return submission.send_unreserved(failure)
    if not reserved.ok or reserved.record is None:
        return unusual().result(parse_job(reserved.record))
    forget_duplicate(key)
    version = reserved.record.version

    # Send the message
    try:
        result = send(task_id=id, headers={HEADER: {"v": VERSION, "key": key, "id": id, "reserved": version}})
    except BaseException as failure:
        unusual().not_sent(Job("reserved", id, record=reserved.record), None, failure)
        raise

    # Confirm the reservation
    fields = {"v": VERSION, "state": "queued", "id": id, "res": version}
    try:
        ref.post(reserved.record, fields, AT_ONCE.message_ttl(task), LISTED_AS_QUEUED)
    except LockBackendError as failure:  # the message was sent, and the worker takes the key without a reservation
        signals.log_failure(task, id, "submission", failure)
    return mark(result, duplicated=False)


def submit(
    task: TaskOptions,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    task_id: str | None,
    key: str | None,
    options: dict[str, Any],
    send: Callable[..., AsyncResult[Any]],
    lock_options: Mapping[str, Any],
) -> AsyncResult[Any]:
    """Send the message of a job, unless there is one already.

    Args:
        task, args, kwargs: the call.
        task_id: the id that the caller gave, or None.
        key: the ``idempotency_key``, or None.
        options: the caller's options of ``apply_async``.
        send: Celery's own ``apply_async`` with these options. It takes ``task_id``, ``headers`` and options that
            replace the caller's.
        lock_options: the options of the lock that the call has in place of the task's own; ``task`` has them.

    Raises:
        DuplicateTask, IdempotencyKeyReused, LockKeyError, LockBackendError, TypeError: as the options say.
    """
    publish = publisher(options, send)
    run = task.request.get("lock_run")
    known = header_in(options.get("headers"), task_id)
    if known is not None:  # a retry, or a redelivery
        if lock_options:
            known = replace(known, options={**known.options, **lock_options})
        result = mark(publish(known.id, known), duplicated=False)
        if run is not None and known.key == run.header.key:  # set only now, since the message was sent
            run.successor = _successor(task, known.id, options)
        return result
    job_key, fingerprint = key_of(task, args, kwargs, key)
    new = Header(job_key, task_id or uuid(), fingerprint=fingerprint, options=lock_options)
    if run is not None and run.header.key == job_key and not is_unique_until_start(task):
        return _submit_from_own_run(
            run, Submission(task, replace(new, submitted_by=run.id), publish, options, id_given=task_id is not None)
        )
    submission = Submission(task, new, publish, options, id_given=task_id is not None)
    tick = beat.current(task.name)
    if tick is not None:
        submission.ticking = True
        claim = beat.claim(task.lock_using, tick, new.id)
        if not claim.won:
            signals.send(signals.tick_suppressed, task, "another beat sent this tick", task_id=claim.winner)
            return mark(task.AsyncResult(claim.winner), duplicated=True)
        if claim.store_down:  # don't wait for it again: that would delay all other entries of beat
            return mark(publish(new.id, new), duplicated=False)
        try:
            return submission.result()
        except BaseException:
            claim.give_back()
            raise
    return submission.result()


def publisher(options: Mapping[str, Any], send: Callable[..., AsyncResult[Any]]) -> Publish:
    """Return a function that sends a message with a header, besides the headers among the caller's options."""

    def publish(id: str, header: Header, **changes: Any) -> AsyncResult[Any]:
        headers = {**(options.get("headers") or {}), HEADER: header.as_dict()}
        return send(task_id=id, headers=headers, **changes)

    return publish


def _successor(task: TaskOptions, id: str, options: Mapping[str, Any]) -> Successor:
    return Successor(id, int(options.get("retries") or 0), times_of(task, options))


def _submit_from_own_run(run: Any, submission: Submission) -> AsyncResult[Any]:
    """Submit a job from its own run. The message gets the key when the run ends; there is at most one such message."""
    task, new, successor = submission.task, submission.new, run.successor
    has_same_id = new.id == run.header.id
    queued = None if successor is None or has_same_id else Job("queued", successor.id)
    if queued is not None and task.lock_on_duplicate != "queue" and not is_void(task, queued):
        return submission.duplicate(queued)
    result = submission.publish(new.id, new)
    if queued is None or task.lock_on_duplicate != "queue":
        run.successor = _successor(task, new.id, submission.options)
    return mark(result, duplicated=False)

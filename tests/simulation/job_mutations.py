"""Mutations of a worker's decisions. The simulation must report a violated rule for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_locks import run_permit, worker_start
from celery_locks.call_options import with_options
from celery_locks.decisions import Verdict, at_start
from celery_locks.header import Message
from celery_locks.job import Job
from celery_locks.options import TaskOptions

Patch = pytest.MonkeyPatch


def _switched(patch: Patch, rule: Verdict, to: Verdict) -> None:
    def decide(job: Job | None, me: Message) -> Verdict:
        found = at_start(job, me)
        return to if found is rule else found

    patch.setattr(worker_start, "at_start", decide)


def conflict_ignored(patch: Patch) -> None:
    """A job runs although another one has its key."""
    _switched(patch, Verdict.CONFLICT, Verdict.RUN)


def copy_is_run(patch: Patch) -> None:
    """A copy of a live run is run."""
    _switched(patch, Verdict.REDELIVER, Verdict.RUN)


def copy_is_dropped(patch: Patch) -> None:
    """A copy of a live run is dropped, although that run may still die."""
    _switched(patch, Verdict.REDELIVER, Verdict.ENDED)


def stored_too_early(patch: Patch) -> None:
    """A job counts as done although its process died before it stored the result."""
    _switched(patch, Verdict.UNSTORED, Verdict.ENDED)


def retry_does_not_wait(patch: Patch) -> None:
    """A retry doesn't wait for the run that sent it."""
    _switched(patch, Verdict.FOLLOWING, Verdict.RUN)


def replaced_too_early(patch: Patch) -> None:
    """A job that is being sent replaces a queued one before it is confirmed."""
    _switched(patch, Verdict.SENDING, Verdict.SUPERSEDED)


def one_more_permit(patch: Patch) -> None:
    """A worker lets one job more run than the limit says."""
    semaphore_of = run_permit.semaphore_of

    def larger(task: TaskOptions, key: str, **options: Any) -> Any:
        return semaphore_of(with_options(task, {"lock_limit": task.lock_limit + 1}), key, **options)

    patch.setattr(run_permit, "semaphore_of", larger)


MUTATIONS: list[tuple[Callable[[Patch], None], str]] = [
    (conflict_ignored, "two bodies at once"),
    (copy_is_run, "two bodies at once"),
    (copy_is_dropped, "neither it nor a later one ran|stuck|has no result"),
    (stored_too_early, "has no result"),
    (retry_does_not_wait, "two bodies at once"),
    (one_more_permit, "3 bodies at once"),
    (replaced_too_early, "neither it nor a later one ran|stuck"),
]

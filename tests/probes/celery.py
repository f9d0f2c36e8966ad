"""Access to the internals of the Celery package, for tests that aren't its unit tests."""

from __future__ import annotations

from typing import Any

from django.core.cache import caches

from celery_locks.beat import claim as claim_tick
from celery_locks.beat import current as current_tick
from celery_locks.job import Job
from celery_locks.job_record import run_record_of
from celery_locks.keys import key_of
from celery_locks.schedule import INTERVAL_SHARE
from django_redis_locks.cache.loading.coordinator import lease_of

__all__ = ["INTERVAL_SHARE", "claim_tick", "current_tick"]


def running_job(task: Any, *args: Any) -> Job | None:
    """The record of the run that has the key of this call."""
    return run_record_of(task, key_of(task, args, {}, None)[0], "").read()


def drop_record(task: Any) -> None:
    """Delete the record of the current run, like another process after the end of its lease."""
    job_record = task.request.get("lock_run").job_record
    job_record.ref.drop(job_record.ref.get())


def pass_key_on(task: Any) -> None:
    """Replace the record of the current run by that of another job's run under the same key."""
    drop_record(task)
    done, _ = task.request.get("lock_run").job_record.put(None, Job("running", "another", run_id="another"), 60)
    assert done


def lease_left(task: Any, *args: Any) -> float:
    """Seconds until the lease of the run that has the key of this call ends."""
    job = running_job(task, *args)
    return job.stored_record.lease_left if job else 0.0


def shorten_lease(task: Any, *args: Any, seconds: float) -> None:
    """Shorten that lease; a renewal extends it again."""
    job_record = run_record_of(task, key_of(task, args, {}, None)[0], "")
    job = job_record.read()
    if job is not None:
        job_record.ref.touch(job.stored_record, seconds, shorten=True)


def load_lease_left(key: str) -> int:
    """Milliseconds until the lease of the load of a value in the default cache ends."""
    left: int = caches["default"]._cache.get_client().pttl(lease_of(caches["default"].make_key(key)))
    return left


def end_load_lease(key: str) -> None:
    """End that lease now."""
    caches["default"]._cache.get_client().delete(lease_of(caches["default"].make_key(key)))

"""A worker that ends is told with its reason, and nothing of it is left."""

from __future__ import annotations

import os

import pytest

from benchmarks.jobs import Job, JobFailed


def test_worker_failure_is_raised_with_its_reason() -> None:
    with Job("raw", "uncontended", "redis://127.0.0.1:1", None, {}) as job, pytest.raises(JobFailed, match="refused"):
        job.ready()


def test_worker_ends_with_its_block(redis_url: str) -> None:
    with Job("raw", "uncontended", redis_url, None, {}) as job:
        job.ready()
        pid = job._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

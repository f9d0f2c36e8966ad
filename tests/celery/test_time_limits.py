"""Time limits. At the hard limit a task is marked as failed while its body may still run."""

from __future__ import annotations

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from tests.celery.conftest import Cluster, submit_until_new_job

pytestmark = pytest.mark.celery


@pytest.mark.chaos
def test_next_run_begins_after_the_end_of_a_body_that_ignores_its_hard_limit(cluster: Cluster, tag: str) -> None:
    """[C7] The body swallows SystemExit and runs until SIGKILL. The next run begins after that, and soon."""
    task, first, body = cluster.begin_job("idempotent.early.ignore_exit", tag, time_limit=4)
    # the other worker is to run the next job: this one is busy with the end of its child
    destination = {"destination": [body.worker], "reply": True, "timeout": 10}
    assert cluster.app.control.cancel_consumer("celery", **destination)
    try:
        with pytest.raises(TimeLimitExceeded):
            first.get(timeout=20)
        second = submit_until_new_job(cluster, task, tag, first, 20)
        (new,) = cluster.journal.wait(tag, "begin", id=second.id, seconds=15)
        cluster.journal.wait(tag, "alive", run=new.run, count=10)
        cluster.journal.open_gate(tag)
        second.get(timeout=10)
    finally:
        cluster.app.control.add_consumer("celery", **destination)
    signs = [entry.run for entry in cluster.journal.entries(tag, "begin", "alive", "swallowed")]
    assert signs == sorted(signs, key=[body.run, new.run].index)


def test_key_is_free_at_once_after_the_soft_limit(cluster: Cluster, tag: str) -> None:
    """[C56] Its exception may be raised anywhere, such as within a call to Redis."""
    task = cluster.task("singleton.early.wait_for_gate")
    first = task.apply_async((tag,), soft_time_limit=1)
    with pytest.raises(SoftTimeLimitExceeded):
        first.get(timeout=20)
    second = task.delay(tag)
    assert second.id != first.id
    cluster.journal.wait(tag, "begin", id=second.id, seconds=10)
    assert cluster.journal.max_concurrency(tag) == 1

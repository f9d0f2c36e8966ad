"""Pools that run several tasks in one process. All other tests use prefork."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cluster
from tests.probes import celery as probe

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("pool", ["threads", "gevent", "eventlet", "solo"])
def test_job_runs_once_and_is_renewed_in_every_pool(make_cluster: Callable[..., Cluster], tag: str, pool: str) -> None:
    """[C24] [C26] [C28] [C59] A copy of its message doesn't run, though it shares the process and perhaps the
    thread."""
    cluster = make_cluster()
    cluster.start_workers(pool=pool)
    task, first, body = cluster.begin_job("singleton.late.short_lease", tag)
    assert body.fence
    cluster.journal.until_rise(lambda: probe.lease_left(task, tag), tag, "a renewal")
    if pool != "solo":
        cluster.redeliver(first.id)
        cluster.journal.wait(tag, "postrun")
    assert task.delay(tag).id == first.id
    other = task.delay(tag, "other")
    if pool != "solo":
        cluster.journal.wait(tag, "begin", id=other.id)
    assert len(cluster.journal.entries(tag, "begin", id=first.id)) == 1
    cluster.journal.open_gate(tag)
    assert first.get(timeout=20) == body.run
    assert other.get(timeout=20)
    after = task.delay(tag)
    assert after.id != first.id
    assert after.get(timeout=20)
    assert len(cluster.journal.entries(tag, "begin")) == 3

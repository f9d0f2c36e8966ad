"""RabbitMQ as broker. Unlike Redis, it redelivers an unacknowledged message when its connection closes, and drops an
expired one itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from billiard.exceptions import WorkerLostError

from tests.celery.conftest import Cluster
from tests.celery.tasks import MESSAGE_EXPIRES
from tests.probes import celery as probe
from tools.rabbitmq_server import RabbitMQ

pytestmark = pytest.mark.chaos


@pytest.mark.servers
def test_jobs_on_rabbitmq_survive_retries_kills_and_expiry_as_on_redis(
    rabbitmq: RabbitMQ, make_cluster: Callable[..., Cluster], tag: str
) -> None:
    """All scenarios are in one test, because the broker takes seconds to start."""
    cluster = make_cluster({"broker": rabbitmq.url()})
    cluster.start_workers(2)
    for scenario in (retry_and_duplicate, killed_child, expiry_in_the_broker, killed_worker):
        scenario(cluster, f"{tag}-{scenario.__name__}")


def retry_and_duplicate(cluster: Cluster, tag: str) -> None:
    """[C1] [C2] A retry that is delivered before the run that sent it has ended waits for that end."""
    task = cluster.task("idempotent.late.retry_and_stay")
    first = task.delay(tag)
    cluster.journal.wait(tag, "prerun", count=2)
    assert task.delay(tag).id == first.id
    cluster.journal.assert_stays_below(tag, "begin", count=2)
    cluster.journal.open_gate(tag)
    first.get(timeout=20)
    assert [entry.what for entry in cluster.journal.entries(tag, "begin", "end")] == ["begin", "end"] * 2
    after = task.delay(tag)
    assert after.id != first.id
    after.get(timeout=20)


def killed_child(cluster: Cluster, tag: str) -> None:
    """[C5] Its message is redelivered at once, or its key is free."""
    _, result, body = cluster.begin_job("idempotent.requeue.wait_for_gate", tag)
    cluster.kill_child(body)
    _, second = cluster.journal.wait(tag, "begin", count=2, seconds=10)
    assert (second.id, second.fence > body.fence) == (result.id, True)
    early, first, body = cluster.begin_job("idempotent.early.wait_for_gate", tag)
    cluster.kill_child(body)
    with pytest.raises(WorkerLostError):
        first.get(timeout=10)
    again = early.delay(tag)
    cluster.journal.wait(tag, "begin", id=again.id, seconds=10)
    cluster.journal.open_gate(tag)
    assert result.get(timeout=10) == second.run
    assert again.get(timeout=10)


def expiry_in_the_broker(cluster: Cluster, tag: str) -> None:
    """[C11] No worker receives it, and no hook is called: its record ends by itself."""
    task = cluster.task("idempotent.early.quick")
    first = task.apply_async((tag,), queue=f"unconsumed-{tag}", expires=MESSAGE_EXPIRES)
    cluster.journal.write("submitted", tag)
    (submitted,) = cluster.journal.entries(tag, "submitted")
    cluster.journal.until(lambda: cluster.journal.age(submitted) > 1.1, tag, "the end of its record")
    second = task.delay(tag)
    assert second.id != first.id
    assert second.get(timeout=10)
    assert len(cluster.journal.entries(tag, "begin")) == 1


def killed_worker(cluster: Cluster, tag: str) -> None:
    """[C31] The message is redelivered while the lease lasts: it waits for its end, and is neither skipped nor lost."""
    task, result, body = cluster.begin_job("singleton.late.short_lease", tag)
    cluster.kill_worker(body)
    probe.shorten_lease(task, tag, seconds=2)
    cluster.journal.wait(tag, "prerun", count=2)
    _, second = cluster.journal.wait(tag, "begin", count=2)
    assert second.fence > body.fence
    cluster.journal.open_gate(tag)
    assert result.get(timeout=10) == second.run
    assert cluster.journal.max_concurrency(tag) == 1

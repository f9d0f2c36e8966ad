"""A message is delivered twice: before, during or after its run. Bodies never overlap, and no job is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cluster, submit_until_new_job
from tests.probes import celery as probe


@pytest.mark.chaos
def test_redelivered_messages_do_not_multiply_when_the_visibility_timeout_is_too_short(
    make_cluster: Callable[..., Cluster], tag: str
) -> None:
    """[C28] While a body runs for longer, the transport redelivers its message each second, waiting copies included.
    Copies that waited for longer than the timeout would multiply each time."""
    transport = {"visibility_timeout": 1, "unacked_restore_interval": 0.2, "unacked_restore_throttle": 1}
    cluster = make_cluster({"transport": transport, "db": 5})
    cluster.start_workers()
    _, result, body = cluster.begin_job("idempotent.late.short_lease", tag)
    cluster.journal.wait(tag, "postrun", count=2)
    cluster.journal.until(lambda: cluster.journal.age(body) > 13, tag, "13 redeliveries")
    # one more for each stall of the worker; 20 and more if they multiply
    assert cluster.count_copies(result.id, f"q-{tag}") <= 12
    cluster.journal.open_gate(tag)
    assert result.get(timeout=10)
    assert len(cluster.journal.entries(tag, "begin")) == 1


@pytest.mark.chaos
@pytest.mark.parametrize("ack", ["late", "early"])
def test_job_of_a_killed_worker_runs_again_when_its_lease_ends(
    make_cluster: Callable[..., Cluster], add_shared_workers, tag: str, ack: str
) -> None:
    """[C28] [C31] The copy that was delivered during the run is the only one left: it waits and is neither skipped nor
    lost. A job that was acknowledged early can be submitted again."""
    cluster = make_cluster()
    cluster.start_workers(concurrency=1)
    task, result, body = cluster.begin_job(f"idempotent.{ack}.short_lease", tag)
    add_shared_workers()
    probe.shorten_lease(task, tag, seconds=2)  # so that the waiting copy is redelivered soon
    if ack == "late":
        cluster.redeliver(result.id)
        cluster.journal.wait(tag, "postrun")
    cluster.kill_worker(body)
    assert task.delay(tag).id == result.id
    second = result if ack == "late" else submit_until_new_job(cluster, task, tag, result, 20)
    cluster.journal.open_gate(tag)
    assert second.get(timeout=20)
    begins = cluster.journal.entries(tag, "begin")
    assert [begin.id for begin in begins] == [result.id, second.id]
    assert begins[1].fence > begins[0].fence
    assert cluster.journal.max_concurrency(tag) == 1


def test_message_with_a_countdown_that_several_workers_hold_runs_once(cluster: Cluster, tag: str) -> None:
    """[C29] With a countdown beyond the visibility timeout several workers hold the message, and all begin at once."""
    cluster.occupy_workers(tag, "early")  # so that no copy runs before the last one is delivered
    result = cluster.task("idempotent.late.quick").apply_async((tag,), countdown=1)
    for _ in range(3):
        cluster.journal.until(lambda: cluster.unacknowledged_message(result.id), tag, "an unacknowledged message")
        cluster.redeliver(result.id)
    cluster.journal.open_gate(f"{tag}-busy")
    assert result.get(timeout=20)
    cluster.journal.wait(tag, "postrun", count=3)
    assert len(cluster.journal.entries(tag, "begin")) == 1


def test_copy_delivered_after_its_run_is_dropped_even_after_the_next_job(cluster: Cluster, tag: str) -> None:
    """[C30] As when an acknowledgement is lost."""
    task, result, _ = cluster.begin_job("idempotent.late.wait_for_gate", tag)
    copy = cluster.unacknowledged_message(result.id)
    cluster.journal.open_gate(tag)
    assert result.get(timeout=10)
    cluster.journal.wait(tag, "postrun")
    cluster.deliver_again(copy)
    cluster.journal.wait(tag, "postrun", count=2)
    assert task.delay(tag).get(timeout=10)
    cluster.journal.wait(tag, "postrun", count=3)
    cluster.deliver_again(copy)
    cluster.journal.wait(tag, "postrun", count=4)
    assert len(cluster.journal.entries(tag, "begin", id=result.id)) == 1
    assert len(cluster.journal.entries(tag, "begin")) == 2
    assert result.state == "SUCCESS"

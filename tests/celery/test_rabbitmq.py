"""RabbitMQ, where it differs from Redis: an unacknowledged message comes back when its connection is gone, and an expired
one is dropped by the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from billiard.exceptions import WorkerLostError

from tests.celery.conftest import Cell
from tests.celery.tasks import EXPIRES
from tests.probes import celery as probe
from tools.rabbitmq_server import RabbitMQ

pytestmark = pytest.mark.chaos


@pytest.mark.servers
def test_rabbitmq_retries_expires_and_redelivers_as_redis_does(
    rabbitmq: RabbitMQ, make_cell: Callable[..., Cell], who: str
) -> None:
    """In one test: the broker takes seconds to start."""
    cell = make_cell({"broker": rabbitmq.url()})
    cell.start(2)
    for story in (retries_and_duplicates, a_child_is_killed, it_expires_in_the_broker, a_node_dies):
        story(cell, f"{who}-{story.__name__}")


def retries_and_duplicates(cell: Cell, who: str) -> None:
    """[C1] [C2] The retry is delivered before the run that sent it has ended; both are one job."""
    task = cell.task("once.late.lingering")
    first = task.delay(who)
    cell.journal.wait(who, "prerun", count=2)
    assert task.delay(who).id == first.id
    cell.journal.stays_out(who, "begin", count=2)
    cell.journal.open_gate(who)
    first.get(timeout=20)
    assert [entry.what for entry in cell.journal.entries(who, "begin", "end")] == ["begin", "end"] * 2
    after = task.delay(who)
    assert after.id != first.id
    after.get(timeout=20)


def a_child_is_killed(cell: Cell, who: str) -> None:
    """[C5] Its message comes back at once, or its key is free."""
    _, result, body = cell.begin("once.requeue.hold", who)
    cell.kill(body)
    _, second = cell.journal.wait(who, "begin", count=2, seconds=10)
    assert (second.id, second.fence > body.fence) == (result.id, True)
    early, first, body = cell.begin("once.early.hold", who)
    cell.kill(body)
    with pytest.raises(WorkerLostError):
        first.get(timeout=10)
    again = early.delay(who)
    cell.journal.wait(who, "begin", id=again.id, seconds=10)
    cell.journal.open_gate(who)
    assert result.get(timeout=10) == second.run
    assert again.get(timeout=10)


def it_expires_in_the_broker(cell: Cell, who: str) -> None:
    """[C11] No worker and no hook ever hears of it."""
    task = cell.task("once.early.quick")
    first = task.apply_async((who,), queue=f"nobody-{who}", expires=EXPIRES)
    cell.journal.write("submitted", who)
    (submitted,) = cell.journal.entries(who, "submitted")
    cell.journal.until(lambda: cell.journal.age(submitted) > 1.1, who, "the end of its record")
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=10)
    assert len(cell.journal.entries(who, "begin")) == 1


def a_node_dies(cell: Cell, who: str) -> None:
    """[C31] The message is back in no time, and the lease lives: it isn't skipped and not lost, it waits."""
    task, result, body = cell.begin("single.late.brief", who)
    cell.kill_node(body)
    probe.shorten_lease(task, who, seconds=2)
    cell.journal.wait(who, "prerun", count=2)
    _, second = cell.journal.wait(who, "begin", count=2)
    assert second.fence > body.fence
    cell.journal.open_gate(who)
    assert result.get(timeout=10) == second.run
    assert cell.journal.crowd(who) == 1

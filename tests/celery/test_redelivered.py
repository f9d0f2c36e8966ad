"""The same message comes twice: while its body runs, before that, and after it. Never two bodies, never a lost job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell, new_job
from tests.probes import celery as probe


@pytest.mark.chaos
def test_copies_do_not_multiply_with_a_visibility_timeout_that_is_too_short(
    make_cell: Callable[..., Cell], who: str
) -> None:
    """[C28] A second, while a body takes longer: the transport delivers it again and again, also copies that wait. Were they
    to wait for longer than that, they would multiply at each turn."""
    transport = {"visibility_timeout": 1, "unacked_restore_interval": 0.2, "unacked_restore_throttle": 1}
    cell = make_cell({"transport": transport, "db": 5})
    cell.start()
    _, result, body = cell.begin("once.late.brief", who)
    cell.journal.wait(who, "postrun", count=2)
    cell.journal.until(lambda: cell.journal.age(body) > 13, who, "some turns")
    # some more for each time that the worker stood still; 20 and more where they multiply
    assert cell.copies(result.id, f"q-{who}") <= 12
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    assert len(cell.journal.entries(who, "begin")) == 1


@pytest.mark.chaos
@pytest.mark.parametrize("ack", ["late", "early"])
def test_job_whose_node_dies_runs_again_when_its_lease_ends(
    make_cell: Callable[..., Cell], help_comes, who: str, ack: str
) -> None:
    """[C28] [C31] The copy that came while it ran is the only one that is left: it waits, and is neither skipped nor lost.
    A job that was acknowledged early can be submitted again."""
    cell = make_cell()
    cell.start(concurrency=1)
    task, result, body = cell.begin(f"once.{ack}.brief", who)
    help_comes()
    probe.shorten_lease(task, who, seconds=2)  # so that the copy comes again soon
    if ack == "late":
        cell.redeliver(result.id)
        cell.journal.wait(who, "postrun")
    cell.kill_node(body)
    assert task.delay(who).id == result.id
    second = result if ack == "late" else new_job(cell, task, who, result, 20)
    cell.journal.open_gate(who)
    assert second.get(timeout=20)
    begins = cell.journal.entries(who, "begin")
    assert [begin.id for begin in begins] == [result.id, second.id]
    assert begins[1].fence > begins[0].fence
    assert cell.journal.crowd(who) == 1


def test_copies_held_by_workers_until_their_time_run_once(cell: Cell, who: str) -> None:
    """[C29] A countdown beyond the visibility timeout: several workers hold the message, and all begin at its time."""
    cell.occupy(who, "early")  # so that none of them has run before the last one comes, however late that is
    result = cell.task("once.late.quick").apply_async((who,), countdown=1)
    for _ in range(3):
        cell.journal.until(lambda: cell.unacked(result.id), who, "a message that waits")
        cell.redeliver(result.id)
    cell.journal.open_gate(f"{who}-busy")
    assert result.get(timeout=20)
    cell.journal.wait(who, "postrun", count=3)
    assert len(cell.journal.entries(who, "begin")) == 1


def test_copy_after_the_end_of_its_run_is_dropped_also_after_the_next_job(cell: Cell, who: str) -> None:
    """[C30] Its acknowledgement was lost."""
    task, result, _ = cell.begin("once.late.hold", who)
    copy = cell.unacked(result.id)
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    cell.journal.wait(who, "postrun")
    cell.deliver(copy)
    cell.journal.wait(who, "postrun", count=2)
    assert task.delay(who).get(timeout=10)
    cell.journal.wait(who, "postrun", count=3)
    cell.deliver(copy)
    cell.journal.wait(who, "postrun", count=4)
    assert len(cell.journal.entries(who, "begin", id=result.id)) == 1
    assert len(cell.journal.entries(who, "begin")) == 2
    assert result.state == "SUCCESS"

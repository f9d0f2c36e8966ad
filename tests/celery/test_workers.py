"""What this suite stands on: workers that run, die and are seen to. With Celery's own task, which knows no lock."""

from __future__ import annotations

from tests.celery.conftest import Cell
from tests.celery.nodes import worker_pids


def test_two_workers_share_the_work(cell: Cell, who: str) -> None:
    results = [cell.task("plain.late.hold").delay(who) for _ in range(4)]
    begins = cell.journal.wait(who, "begin", count=4)
    assert {begin.node for begin in begins} == {node.host for node in cell.nodes}
    assert {begin.pid for begin in begins} == {pid for node in cell.nodes for pid in worker_pids(node)}
    assert cell.journal.crowd(who) == 4
    cell.journal.open_gate(who)
    assert {result.get(timeout=10) for result in results} == {begin.run for begin in begins}


def test_a_message_can_be_delivered_again_while_its_body_runs(cell: Cell, who: str) -> None:
    """[C28] So that the tests of redelivery rest on something."""
    result = cell.task("plain.late.hold").delay(who)
    cell.journal.wait(who, "begin")
    cell.redeliver(result.id)
    cell.journal.wait(who, "begin", count=2, id=result.id)
    assert cell.journal.crowd(who) == 2


def test_a_message_can_come_back_after_its_body_has_run(cell: Cell, who: str) -> None:
    """[C30]"""
    result = cell.task("plain.late.hold").delay(who)
    cell.journal.wait(who, "begin")
    copy = cell.message(result.id)
    cell.journal.open_gate(who)
    cell.journal.wait(who, "end")
    cell.deliver(copy)
    cell.journal.wait(who, "begin", count=2, id=result.id)


def test_a_retry_can_begin_before_the_run_that_asks_for_it_ends(cell: Cell, who: str) -> None:
    """[C2]"""
    cell.task("plain.early.lingering").delay(who)
    cell.journal.wait(who, "begin", count=2)
    assert cell.journal.crowd(who) == 2


def test_a_child_that_is_killed_is_replaced(cell: Cell, who: str) -> None:
    """[C5]"""
    result = cell.task("plain.requeue.hold").delay(who)
    (first,) = cell.journal.wait(who, "begin")
    cell.kill(first)
    cell.journal.wait(who, "begin", count=2, id=result.id)
    assert cell.journal.crowd(who) == 1
    cell.journal.open_gate(who)
    assert result.get(timeout=10)

"""What the other tests rest on: with Celery's own task, which takes no lock, bodies overlap and run again."""

from __future__ import annotations

from tests.celery.conftest import Cell
from tests.celery.nodes import worker_pids


def test_plain_jobs_are_shared_by_two_workers(cell: Cell, who: str) -> None:
    results = [cell.task("plain.late.hold").delay(who) for _ in range(4)]
    begins = cell.journal.wait(who, "begin", count=4)
    assert {begin.node for begin in begins} == {node.host for node in cell.nodes}
    assert {begin.pid for begin in begins} == {pid for node in cell.nodes for pid in worker_pids(node)}
    assert cell.journal.crowd(who) == 4
    cell.journal.open_gate(who)
    assert {result.get(timeout=10) for result in results} == {begin.run for begin in begins}


def test_plain_job_delivered_again_runs_again(cell: Cell, who: str) -> None:
    """[C28] [C30] While it runs, and after its end."""
    _, result, _ = cell.begin("plain.late.hold", who)
    copy = cell.unacked(result.id)
    cell.redeliver(result.id)
    cell.journal.wait(who, "begin", count=2, id=result.id)
    assert cell.journal.crowd(who) == 2
    cell.journal.open_gate(who)
    cell.journal.wait(who, "end", count=2)
    cell.deliver(copy)
    cell.journal.wait(who, "begin", count=3, id=result.id)


def test_plain_job_of_a_killed_child_runs_again(cell: Cell, who: str) -> None:
    """[C5]"""
    _, result, first = cell.begin("plain.requeue.hold", who)
    cell.kill(first)
    cell.journal.wait(who, "begin", count=2, id=result.id)
    assert cell.journal.crowd(who) == 1
    cell.journal.open_gate(who)
    assert result.get(timeout=10)

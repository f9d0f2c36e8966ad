"""The same message comes twice: while its body runs, before that, and after it. Never two bodies, never a lost job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@pytest.mark.chaos
@KINDS
def test_a_copy_of_a_live_run_stays_out(cell: Cell, who: str, kind: str) -> None:
    """[C28] It is kept for as long as the run may still die, and dropped when that has come to its end."""
    result = cell.task(f"{kind}.late.brief").delay(who)
    cell.journal.wait(who, "begin")
    cell.redeliver(result.id)
    cell.journal.wait(who, "postrun")  # it came, and comes again
    assert len(cell.journal.entries(who, "begin")) == 1
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    cell.journal.wait(who, "postrun", count=3)  # and is dropped
    assert len(cell.journal.entries(who, "begin")) == 1


@pytest.mark.chaos
def test_a_visibility_timeout_that_is_too_short(make_cell: Callable[..., Cell], who: str) -> None:
    """[C28] A second, while a body takes longer: the transport delivers it again and again, also copies that wait. Were they
    to wait for longer than that, they would multiply at each turn."""
    transport = {"visibility_timeout": 1, "unacked_restore_interval": 0.2, "unacked_restore_throttle": 1}
    cell = make_cell({"transport": transport, "db": 5})
    cell.start()
    result = cell.task("once.late.brief").delay(who)
    (body,) = cell.journal.wait(who, "begin")
    cell.journal.wait(who, "postrun", count=2)
    cell.journal.until(lambda: cell.journal.age(body) > 13, who, "some turns")
    # some more for each time that the worker stood still; 20 and more where they multiply
    assert cell.copies(result.id, f"q-{who}") <= 12
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    assert len(cell.journal.entries(who, "begin")) == 1


@pytest.mark.chaos
def test_a_copy_of_a_run_whose_node_dies_runs(make_cell: Callable[..., Cell], help_comes, who: str) -> None:
    """[C28] [C31] That copy is the only one that is left."""
    cell = make_cell()
    cell.start(concurrency=1)
    result = cell.task("once.late.brief").delay(who)
    (body,) = cell.journal.wait(who, "begin")
    help_comes()
    cell.redeliver(result.id)
    cell.journal.wait(who, "postrun")
    cell.kill_node(body)
    cell.journal.wait(who, "begin", count=2)
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    assert cell.journal.crowd(who) == 1
    assert len(cell.journal.entries(who, "begin")) == 2


def test_many_copies_that_wait_for_their_time(cell: Cell, who: str) -> None:
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


@KINDS
def test_a_copy_that_comes_after_the_end_isnt_run(cell: Cell, who: str, kind: str) -> None:
    """[C30] Its acknowledgement was lost."""
    result = cell.task(f"{kind}.late.hold").delay(who)
    cell.journal.wait(who, "begin")
    copy = cell.message(result.id)
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    cell.journal.wait(who, "postrun")
    cell.deliver(copy)
    cell.journal.wait(who, "postrun", count=2)
    assert len(cell.journal.entries(who, "begin")) == 1
    assert result.state == "SUCCESS"


def test_a_copy_that_comes_after_the_next_job_isnt_run(cell: Cell, who: str) -> None:
    """[C30] The key has been another job's in between."""
    task = cell.task("once.late.hold")
    result = task.delay(who)
    cell.journal.wait(who, "begin")
    copy = cell.message(result.id)
    cell.journal.open_gate(who)
    assert result.get(timeout=10)
    assert task.delay(who).get(timeout=10)
    cell.journal.wait(who, "postrun", count=2)
    cell.deliver(copy)
    cell.journal.wait(who, "postrun", count=3)
    assert len(cell.journal.entries(who, "begin")) == 2

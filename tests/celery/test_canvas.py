"""Duplicates in a chord, a group, a chain, or with a callback: they take the first job's result."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from tests.celery.conftest import Cell

pytestmark = pytest.mark.celery


def test_chord_of_duplicates_has_one_run_and_all_its_results(cell: Cell, who: str) -> None:
    """[C17] [C18]"""
    task = cell.task("single.early.hold")
    result = chord([task.s(who), task.s(who), task.s(who)])(cell.task("collect").s(who))
    (body,) = cell.journal.wait(who, "begin")
    cell.journal.wait(who, "prerun", count=3)
    cell.journal.open_gate(who)
    assert result.get(timeout=20) == [body.run] * 3
    assert len(cell.journal.entries(who, "begin")) == 1


def test_duplicates_in_a_group_a_chain_and_with_a_callback_take_the_first_result(cell: Cell, who: str) -> None:
    """[C17] [C19] The chain goes on, and the callback is called, with the result of the job that was there."""
    task, first, body = cell.begin("once.early.hold", who)
    collect = cell.task("collect")
    together = group([task.s(who), collect.s("other", who)]).apply_async()
    chained = chain(task.si(who), collect.s(who)).apply_async()
    linked = task.apply_async((who,), link=collect.s(f"{who}-link"))
    cell.journal.wait(who, "prerun", count=4)
    cell.journal.open_gate(who)
    assert first.get(timeout=20) == body.run
    assert together.get(timeout=20) == [body.run, "other"]
    assert chained.get(timeout=20) == body.run
    assert linked.get(timeout=20) == body.run
    (collected,) = cell.journal.wait(f"{who}-link", "collected")
    assert collected.results == body.run
    assert len(cell.journal.entries(who, "begin")) == 1


def test_chain_whose_next_step_is_the_same_job_runs_it_again(cell: Cell, who: str) -> None:
    """[C17] The key is free before the next step is sent."""
    task = cell.task("once.early.quick")
    result = chain(task.si(who), task.si(who), cell.task("collect").s(who)).apply_async()
    last = result.get(timeout=20)
    begins = cell.journal.entries(who, "begin")
    assert len(begins) == 2
    assert last == begins[-1].run
    assert cell.journal.crowd(who) == 1


def test_chord_fails_with_the_job_that_its_part_follows(cell: Cell, who: str) -> None:
    """[C18]"""
    task, first, _ = cell.begin("once.early.failing", who)
    result = chord([task.s(who)])(cell.task("collect").s(who))
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.open_gate(who)
    with pytest.raises(ValueError, match=who):
        first.get(timeout=20)
    with pytest.raises(Exception, match=who):
        result.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 1

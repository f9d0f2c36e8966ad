"""Duplicates that somebody counts on: in a chord, a group, a chain, or with a callback. They take the first one's result."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from tests.celery.conftest import Cell

pytestmark = pytest.mark.celery

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@KINDS
def test_a_chord_of_duplicates(cell: Cell, who: str, kind: str) -> None:
    """[C17] [C18] One body, and the chord has all its parts."""
    task = cell.task(f"{kind}.early.hold")
    result = chord([task.s(who), task.s(who), task.s(who)])(cell.task("collect").s(who))
    (body,) = cell.journal.wait(who, "begin")
    cell.journal.wait(who, "prerun", count=3)
    cell.journal.open_gate(who)
    assert result.get(timeout=20) == [body.run] * 3
    assert len(cell.journal.entries(who, "begin")) == 1


@KINDS
def test_a_group_that_shares_a_job_with_somebody_else(cell: Cell, who: str, kind: str) -> None:
    """[C17]"""
    task = cell.task(f"{kind}.early.hold")
    first = task.delay(who)
    cell.journal.wait(who, "begin")
    result = group([task.s(who), cell.task("collect").s("other", who)]).apply_async()
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.open_gate(who)
    run = first.get(timeout=20)
    assert result.get(timeout=20) == [run, "other"]
    assert len(cell.journal.entries(who, "begin")) == 1


@KINDS
def test_a_chain_whose_next_step_is_the_same_job(cell: Cell, who: str, kind: str) -> None:
    """[C17] The key is free before the next step is sent: it runs, once more."""
    task = cell.task(f"{kind}.early.quick")
    result = chain(task.si(who), task.si(who), cell.task("collect").s(who)).apply_async()
    last = result.get(timeout=20)
    begins = cell.journal.entries(who, "begin")
    assert len(begins) == 2
    assert last == begins[-1].run
    assert cell.journal.crowd(who) == 1


@KINDS
def test_a_duplicate_in_a_chain(cell: Cell, who: str, kind: str) -> None:
    """[C17] The chain goes on with the result of the job that was there."""
    task = cell.task(f"{kind}.early.hold")
    first = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    result = chain(task.si(who), cell.task("collect").s(who)).apply_async()
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.open_gate(who)
    assert first.get(timeout=20) == body.run
    assert result.get(timeout=20) == body.run
    assert len(cell.journal.entries(who, "begin")) == 1


@KINDS
def test_the_callback_of_a_duplicate_is_called(cell: Cell, who: str, kind: str) -> None:
    """[C19]"""
    task = cell.task(f"{kind}.early.hold")
    first = task.delay(who)
    cell.journal.wait(who, "begin")
    twin = task.apply_async((who,), link=cell.task("collect").s(who))
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.open_gate(who)
    run = first.get(timeout=20)
    assert twin.get(timeout=20) == run
    (collected,) = cell.journal.wait(who, "collected")
    assert collected.results == run
    assert len(cell.journal.entries(who, "begin")) == 1


def test_a_chord_fails_with_the_job_that_its_part_follows(cell: Cell, who: str) -> None:
    """[C18] Nobody waits for ever."""
    task = cell.task("once.early.failing")
    first = task.delay(who)
    cell.journal.wait(who, "begin")
    result = chord([task.s(who)])(cell.task("collect").s(who))
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.open_gate(who)
    with pytest.raises(ValueError, match=who):
        first.get(timeout=20)
    with pytest.raises(Exception, match=who):
        result.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 1

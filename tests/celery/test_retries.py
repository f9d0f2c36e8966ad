"""A retry is the same job: its message is sent although its own lock is held, and no other job comes between."""

from __future__ import annotations

import pytest

from tests.celery.conftest import Cell

pytestmark = pytest.mark.celery


def test_job_that_fails_twice_runs_three_times_with_rising_fences(cell: Cell, who: str) -> None:
    """[C1] The retried message is sent, although its lock is its own."""
    result = cell.task("single.early.flaky").delay(who)
    last = result.get(timeout=20)
    begins = cell.journal.entries(who, "begin")
    assert [begin.retries for begin in begins] == [0, 1, 2]
    assert begins[-1].run == last
    assert {begin.id for begin in begins} == {result.id}
    fences = [begin.fence for begin in begins]
    assert None not in fences
    assert fences == sorted(set(fences))


def test_submission_between_two_tries_is_a_duplicate(cell: Cell, who: str) -> None:
    """[C1] [C3]"""
    task, first, _ = cell.begin("once.early.patient", who)
    cell.journal.wait(who, "end", how="Retry")
    assert task.delay(who).id == first.id
    cell.journal.open_gate(who)
    first.get(timeout=20)
    assert [begin.retries for begin in cell.journal.entries(who, "begin")] == [0, 1]


def test_retry_begins_after_the_run_that_asked_for_it_has_ended(cell: Cell, who: str) -> None:
    """[C2] With countdown=0 another worker has the message before the first body has ended."""
    result = cell.task("single.early.lingering").delay(who)
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.stays_out(who, "begin", count=2)
    cell.journal.open_gate(who)
    result.get(timeout=20)
    assert [entry.what for entry in cell.journal.entries(who, "begin", "end")] == ["begin", "end"] * 2

"""A retry is the same job: its message goes out although its own lock is held, and nobody comes between."""

from __future__ import annotations

import pytest

from tests.celery.conftest import Cell

pytestmark = pytest.mark.celery

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@KINDS
def test_it_fails_twice_and_then_succeeds(cell: Cell, who: str, kind: str) -> None:
    """[C1] The retried message is sent, although its lock is its own. Every run has a fence of its own."""
    result = cell.task(f"{kind}.early.flaky").delay(who)
    last = result.get(timeout=20)
    begins = cell.journal.entries(who, "begin")
    assert [begin.retries for begin in begins] == [0, 1, 2]
    assert begins[-1].run == last
    assert {begin.id for begin in begins} == {result.id}
    fences = [begin.fence for begin in begins]
    assert None not in fences
    assert fences == sorted(set(fences))


@pytest.mark.chaos
@KINDS
def test_between_its_tries_it_is_still_that_job(cell: Cell, who: str, kind: str) -> None:
    """[C1] [C3] What is submitted while it waits for its retry is a duplicate; after its end it isn't."""
    task = cell.task(f"{kind}.early.patient")
    first = task.delay(who)
    cell.journal.wait(who, "end", how="Retry")
    twin = task.delay(who)
    assert twin.id == first.id
    cell.journal.open_gate(who)
    first.get(timeout=20)
    assert [begin.retries for begin in cell.journal.entries(who, "begin")] == [0, 1]
    after = task.delay(who)
    assert after.id != first.id
    after.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 4


@KINDS
def test_a_retry_waits_for_the_run_that_asked_for_it(cell: Cell, who: str, kind: str) -> None:
    """[C2] With countdown=0 another worker has the message before the first body has ended."""
    result = cell.task(f"{kind}.early.lingering").delay(who)
    cell.journal.wait(who, "prerun", count=2)
    cell.journal.stays_out(who, "begin", count=2)
    cell.journal.open_gate(who)
    result.get(timeout=20)
    assert [entry.what for entry in cell.journal.entries(who, "begin", "end")] == ["begin", "end"] * 2


@KINDS
def test_many_retries_at_once_on_two_workers(cell: Cell, who: str, kind: str) -> None:
    """[C2] [C41] No run meets its own predecessor and gives up."""
    results = [cell.task(f"{kind}.late.flaky").delay(who, 1 + number % 3) for number in range(3)]
    results += [cell.task(f"{kind}.early.flaky").delay(who, 1 + number % 3) for number in range(3)]
    for result in results:
        result.get(timeout=30)
        assert cell.journal.crowd(who, id=result.id) == 1
    assert len(cell.journal.entries(who, "begin")) == 2 * (2 + 3 + 4)

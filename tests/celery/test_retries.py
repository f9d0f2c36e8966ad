"""A retry is the same job: it is sent while its own lock is held, and no other job runs in between."""

from __future__ import annotations

import pytest

from tests.celery.conftest import Cluster

pytestmark = pytest.mark.celery


def test_job_that_fails_twice_runs_three_times_with_rising_fences(cluster: Cluster, tag: str) -> None:
    """[C1] A retry isn't taken for a duplicate of its own job."""
    result = cluster.task("singleton.early.flaky").delay(tag)
    last = result.get(timeout=20)
    begins = cluster.journal.entries(tag, "begin")
    assert [begin.retries for begin in begins] == [0, 1, 2]
    assert begins[-1].run == last
    assert {begin.id for begin in begins} == {result.id}
    fences = [begin.fence for begin in begins]
    assert None not in fences
    assert fences == sorted(set(fences))


def test_submission_between_a_run_and_its_retry_is_a_duplicate(cluster: Cluster, tag: str) -> None:
    """[C1] [C3]"""
    task, first, _ = cluster.begin_job("idempotent.early.retry_later", tag)
    cluster.journal.wait(tag, "end", how="Retry")
    assert task.delay(tag).id == first.id
    cluster.journal.open_gate(tag)
    first.get(timeout=20)
    assert [begin.retries for begin in cluster.journal.entries(tag, "begin")] == [0, 1]


def test_retry_begins_after_the_run_that_sent_it_has_ended(cluster: Cluster, tag: str) -> None:
    """[C2] With countdown=0 another worker receives the retry before the first body has ended."""
    result = cluster.task("singleton.early.retry_and_stay").delay(tag)
    cluster.journal.wait(tag, "prerun", count=2)
    cluster.journal.assert_stays_below(tag, "begin", count=2)
    cluster.journal.open_gate(tag)
    result.get(timeout=20)
    assert [entry.what for entry in cluster.journal.entries(tag, "begin", "end")] == ["begin", "end"] * 2

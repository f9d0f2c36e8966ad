"""Duplicates in a chord, a group, a chain, or with a callback take the first job's result."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from tests.celery.conftest import Cluster

pytestmark = pytest.mark.celery


def test_chord_of_duplicates_runs_once_and_has_all_results(cluster: Cluster, tag: str) -> None:
    """[C17] [C18]"""
    task = cluster.task("singleton.early.wait_for_gate")
    result = chord([task.s(tag), task.s(tag), task.s(tag)])(cluster.task("collect").s(tag))
    (body,) = cluster.journal.wait(tag, "begin")
    cluster.journal.wait(tag, "prerun", count=3)
    cluster.journal.open_gate(tag)
    assert result.get(timeout=20) == [body.run] * 3
    assert len(cluster.journal.entries(tag, "begin")) == 1


def test_duplicates_in_a_group_a_chain_and_with_a_callback_take_the_first_result(cluster: Cluster, tag: str) -> None:
    """[C17] [C19] The chain continues and the callback is called with the result of the running job."""
    task, first, body = cluster.begin_job("idempotent.early.wait_for_gate", tag)
    collect = cluster.task("collect")
    together = group([task.s(tag), collect.s("other", tag)]).apply_async()
    chained = chain(task.si(tag), collect.s(tag)).apply_async()
    linked = task.apply_async((tag,), link=collect.s(f"{tag}-link"))
    cluster.journal.wait(tag, "prerun", count=4)
    cluster.journal.open_gate(tag)
    assert first.get(timeout=20) == body.run
    assert together.get(timeout=20) == [body.run, "other"]
    assert chained.get(timeout=20) == body.run
    assert linked.get(timeout=20) == body.run
    (collected,) = cluster.journal.wait(f"{tag}-link", "collected")
    assert collected.results == body.run
    assert len(cluster.journal.entries(tag, "begin")) == 1


def test_chain_whose_next_step_is_the_same_job_runs_it_again(cluster: Cluster, tag: str) -> None:
    """[C17] The key is freed before the next step is sent."""
    task = cluster.task("idempotent.early.quick")
    result = chain(task.si(tag), task.si(tag), cluster.task("collect").s(tag)).apply_async()
    last = result.get(timeout=20)
    begins = cluster.journal.entries(tag, "begin")
    assert len(begins) == 2
    assert last == begins[-1].run
    assert cluster.journal.max_concurrency(tag) == 1


def test_chord_fails_when_the_job_that_its_duplicate_follows_fails(cluster: Cluster, tag: str) -> None:
    """[C18]"""
    task, first, _ = cluster.begin_job("idempotent.early.failing", tag)
    result = chord([task.s(tag)])(cluster.task("collect").s(tag))
    cluster.journal.wait(tag, "prerun", count=2)
    cluster.journal.open_gate(tag)
    with pytest.raises(ValueError, match=tag):
        first.get(timeout=20)
    with pytest.raises(Exception, match=tag):
        result.get(timeout=20)
    assert len(cluster.journal.entries(tag, "begin")) == 1

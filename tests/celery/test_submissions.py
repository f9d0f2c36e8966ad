"""Concurrent submissions by several processes, and submissions of tasks declared in each way."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.celery.conftest import Cluster
from tests.celery.declarations import FORMS
from tests.celery.worker_process import ROOT
from tools.processes import die_with_parent


@pytest.mark.chaos
def test_200_concurrent_submissions_by_four_processes_send_one_message(cluster: Cluster, tag: str) -> None:
    """[C13] [C41] With fifty threads in each process: one id, and 199 duplicates."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environment["CELERY_TESTS"] = json.dumps(cluster.config)
    command = [
        *die_with_parent(),
        sys.executable,
        "-m",
        "tests.celery.concurrent_submitter",
        tag,
        "idempotent.early.quick",
        "50",
    ]
    processes = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(4)]
    cluster.journal.wait(tag, "ready", count=4, seconds=60)
    cluster.journal.open_gate(tag)
    submitted = cluster.journal.wait(tag, "submitted", count=4)
    for process in processes:
        assert process.wait(10) == 0
    assert sum(entry.count for entry in submitted) == 200
    assert len({id for entry in submitted for id in entry.ids}) == 1
    assert sum(entry.duplicates for entry in submitted) == 199
    assert cluster.queue_length(f"unconsumed-{tag}") == 1


def test_task_declared_in_any_way_is_a_singleton(cluster: Cluster, tag: str) -> None:
    """[C48] By a registered class, by `base=` of both decorators, and by the default class of the app."""
    for form in FORMS:
        case_tag = f"{tag}-{form}"
        task, first, _ = cluster.begin_job(f"form.{form}", case_tag)
        duplicate = task.delay(case_tag)
        assert (duplicate.id, duplicate.deduplicated, first.deduplicated) == (first.id, True, False), form
        other = task.delay(case_tag, "other")
        cluster.journal.wait(case_tag, "begin", count=2)
        cluster.journal.open_gate(case_tag)
        assert first.get(timeout=20) != other.get(timeout=20)
        after = task.delay(case_tag)
        assert after.id != first.id
        assert after.get(timeout=20)


def test_job_that_waits_in_a_worker_by_an_option_of_its_call_begins_when_its_key_is_free(
    cluster: Cluster, tag: str
) -> None:
    """[K12] Without the wait it would be redelivered in ten minutes."""
    task, first, _ = cluster.begin_job("singleton.early.wait_for_gate", tag)
    options = {"lock_on_duplicate": "queue", "lock_on_conflict": "retry", "lock_wait": 60, "lock_retry_delay": 600}
    second = task.apply_async((tag,), **options)
    cluster.journal.wait(tag, "prerun", count=2)
    cluster.journal.open_gate(tag)
    assert second.get(timeout=20) != first.get(timeout=20)
    assert [entry.what for entry in cluster.journal.entries(tag, "begin", "end")] == ["begin", "end"] * 2

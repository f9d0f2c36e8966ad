"""Mutual exclusion, proved by a counter that loses no update."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.matrix import PATIENCE, Face
from tests.contract.shared_counter import Counter, awork, work

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    counter = Counter(tmp_path / "counter")
    counter.reset()
    return counter


def test_callers_of_one_process_lose_no_update(face: Face, counter: Counter) -> None:
    """Six callers, twenty times each: 120 updates, and the fences rise in the order of the writes."""
    lock = face.lock(wait=2 * PATIENCE)
    futures = [face.caller().start(awork if face.is_async else work, lock, counter, 20) for _ in range(6)]
    for future in futures:
        future.result(3 * PATIENCE)
    assert counter.value == 120
    assert counter.fences == sorted(set(counter.fences))


def test_processes_lose_no_update(redis_url: str, counter: Counter, tmp_path: Path) -> None:
    """Three processes, of threads and of tasks: 60 updates, and the fences rise in the order of the writes."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with ExitStack() as stack:
        workers = []
        for face in ("sync", "async", "sync"):
            command = [
                sys.executable,
                "-m",
                "tests.contract.shared_counter",
                redis_url,
                str(tmp_path / "counter"),
                "2",
                "10",
                face,
            ]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            worker = stack.enter_context(subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes))
            stack.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            assert worker.wait(3 * PATIENCE) == 0
    assert counter.value == 60
    assert counter.fences == sorted(set(counter.fences))

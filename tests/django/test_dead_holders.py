"""`release_dead` releases locks and jobs of dead processes on this machine only."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from django_redis_locks import arelease_dead, inspection, locks, release_dead
from tests.django.test_console import call
from tests.probes.django import free_holds, holds_of_dead_processes


@pytest.fixture
def held(redis_url: str, settings) -> Iterator[Callable[[], None]]:
    """A lock held by another process; `held()` kills it."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    program = (
        "import sys; from django_redis_locks import locks;"
        "locks.configure({'default': {'LOCATION': sys.argv[1], 'EXPIRE': 600}});"
        "grant = locks.lock('report').acquire(); print('held', flush=True); sys.stdin.read()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, redis_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout.readline() == b"held\n"

    def kill() -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    yield kill
    kill()
    for stream in (process.stdin, process.stdout):
        stream.close()


def test_holds_of_live_processes_and_other_hosts_are_not_released(held: Callable[[], None]) -> None:
    """[C21] [C22]"""
    locks.record("elsewhere").put(None, job("elsewhere.example", 1), 600, show_in_admin=True)
    with locks.lock("mine"):
        assert release_dead() == holds_of_dead_processes() == []
    assert locks.lock("report").locked()
    assert locks.record("elsewhere").get() is not None


@pytest.mark.parametrize("release_dead", [release_dead, lambda **who: asyncio.run(arelease_dead(**who))])
def test_hold_and_job_of_a_dead_process_are_released(
    held: Callable[[], None], release_dead: Callable[..., list[inspection.LockInfo]]
) -> None:
    """[L8] [C21] Its lease would have lasted for ten minutes."""
    holder = locks.lock("report").holder()
    record = locks.record("job:report:7")
    record.put(None, job(socket.gethostname(), holder.pid), 600, show_in_admin=True)
    assert release_dead() == []
    held()
    assert {(info.key, info.kind) for info in release_dead(actor="me")} == {("report", "lock"), ("job:report:7", "job")}
    assert record.get() is None
    with locks.lock("report", wait=0):
        pass


def test_hold_acquired_after_the_listing_is_not_released(held: Callable[[], None]) -> None:
    """[C23]"""
    held()
    found = holds_of_dead_processes()
    locks.lock("report").force_release()
    with locks.lock("report"):
        assert free_holds(found) == []


def job(host: str, pid: int) -> dict[str, object]:
    return {"v": 1, "state": "running", "id": "task", "holder": [host, pid, "main", "report"]}


def test_dead_holds_beyond_the_first_page_are_released(
    held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "LONGEST_PAGE", 2)
    with locks.lock("a"), locks.lock("b"), locks.lock("c", expire=60):
        held()
        assert [info.key for info in holds_of_dead_processes()] == ["report"]


def test_command_releases_dead_holds(held: Callable[[], None]) -> None:
    assert call("release-dead", "--yes").code == 1
    held()
    assert call("release-dead", "--json").code == 2
    done = call("release-dead", "--yes", "--json")
    assert done.code == 0, done.err
    assert [lock["key"] for lock in done.document["released"]] == ["report"]
    assert not locks.lock("report").locked()

"""[C5.5] Real beats, in processes of their own, with each scheduler; a private Redis is broker and store.

The assertions don't measure time, so a slow machine doesn't matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tools.processes import with_parent
from tools.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0

pytestmark = pytest.mark.slow


class Tick(NamedTuple):
    pid: int
    won: bool
    winner: str


class Beats:
    def __init__(self, server: RedisServer, folder: Path, stack: ExitStack) -> None:
        self.server = server
        self.folder = folder
        self.stack = stack
        self.environment = os.environ | {"BEAT_REDIS": server.url(), "BEAT_INTERVAL": "0.3", "PYTHONPATH": str(ROOT)}
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)

    def python(self, *arguments: str) -> list[str]:
        return [*with_parent(), sys.executable, *arguments]

    def starts(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.stack.enter_context((self.folder / f"{time.monotonic_ns()}.log").open("wb"))
        command = self.python("-m", "celery", "-A", "tests.celery.beat_app", *arguments)
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        self.stack.callback(_end, process)
        return process

    def ticks(self) -> list[Tick]:
        return [Tick(*json.loads(one)) for one in self.server.command("LRANGE", "ticks", 0, -1)]

    def until(self, what: str, holds: Any) -> list[Tick]:
        deadline = time.monotonic() + PATIENCE
        while not holds(ticks := self.ticks()):
            assert time.monotonic() < deadline, f"never {what}: {ticks}\n{self.logs()}"
            time.sleep(0.05)
        return ticks

    def logs(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in sorted(self.folder.glob("*.log")))


def _end(process: subprocess.Popen[bytes]) -> None:
    """And the beat that is embedded in it, which is a process of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def beats(redis_executable: None, tmp_path: Path) -> Iterator[Beats]:
    with ExitStack() as stack:
        yield Beats(stack.enter_context(RedisServer()), tmp_path, stack)


def each_has(ticks: list[Tick], count: int) -> bool:
    pids = [tick.pid for tick in ticks]
    return len(set(pids)) == 2 and all(pids.count(pid) >= count for pid in set(pids))


def right(ticks: list[Tick]) -> None:
    """No two ticks of a beat end in the same message, so none was lost; and each message was claimed by one beat."""
    for pid in {tick.pid for tick in ticks}:
        winners = [tick.winner for tick in ticks if tick.pid == pid]
        assert len(winners) == len(set(winners)), ticks
    won = [tick.winner for tick in ticks if tick.won]
    assert len(won) == len(set(won)), ticks
    last = {tick.winner for tick in ticks[-2:]}  # who won it comes to the journal a moment later
    assert {tick.winner for tick in ticks} - last <= set(won), ticks


SCHEDULERS = {
    "persistent": ["beat", "-S", "celery.beat:PersistentScheduler"],
    "database": ["beat", "-S", "django_celery_beat.schedulers:DatabaseScheduler"],
    "embedded": ["worker", "-B", "-P", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat"],
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_tick_is_one_message(beats: Beats, scheduler: str) -> None:
    command = SCHEDULERS[scheduler]
    if scheduler == "database":
        beats.environment |= {
            "DJANGO_SETTINGS_MODULE": "tests.celery.beat_settings",
            "BEAT_DATABASE": str(beats.folder / "schedule.sqlite3"),
            "BEAT_INTERVAL": "1",  # in whole seconds
        }
        subprocess.run(beats.python("-m", "django", "migrate", "-v0"), env=beats.environment, check=True, cwd=ROOT)
    for name in "ab":
        extra = {"persistent": ["-s", f"schedule-{name}"], "embedded": ["-s", f"schedule-{name}", "-n", f"{name}@here"]}
        pid = [] if scheduler == "embedded" else ["--pidfile", ""]
        beats.starts(*command, *extra.get(scheduler, []), *pid, "-l", "INFO")
    count = 4 if scheduler == "database" else 10
    ticks = beats.until(f"{count} ticks of each", lambda ticks: each_has(ticks, count))
    right(ticks)
    both = ticks[next(n for n in range(len(ticks)) if each_has(ticks[: n + 1], 1)) :]
    assert abs(len(both) - 2 * sum(tick.won for tick in both)) <= 3, both  # one of two is published


def test_the_other_one_goes_on(beats: Beats) -> None:
    """With the plain scheduler. A beat that is killed leaves its claim, which ends before the next tick but one."""
    processes = [beats.starts("beat", "-S", "celery.beat:Scheduler", "--pidfile", "") for _ in "ab"]
    ticks = beats.until("five ticks of each", lambda ticks: each_has(ticks, 5))
    winner = next(tick.pid for tick in reversed(ticks) if tick.won)
    (dead,) = [process for process in processes if process.pid == winner]
    dead.kill()
    dead.wait()
    killed = len(beats.ticks())
    ticks = beats.until("five more", lambda ticks: len(ticks) >= killed + 5)
    right(ticks)
    after = ticks[killed:]
    assert {tick.pid for tick in after} == {process.pid for process in processes} - {winner}
    assert sum(tick.won for tick in after) >= len(after) - 1
    messages = beats.server.command("LRANGE", "celery", 0, -1)
    published = [json.loads(message)["headers"]["id"] for message in messages]
    claimed = {tick.winner for tick in beats.ticks() if tick.won}
    assert len(published) == len(set(published))
    assert set(published) <= claimed
    assert len(claimed) - len(published) <= 2  # on its way when the one was killed; on its way now

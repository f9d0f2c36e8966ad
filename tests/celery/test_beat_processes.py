"""Several beat processes, with each scheduler, publish each tick once. One Redis is broker and store.

A beat process may stall at any point, so times are only compared where their order is certain.
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
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.probes.celery import INTERVAL_SHARE
from tools.processes import die_with_parent
from tools.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 60.0

pytestmark = pytest.mark.chaos


class Tick(NamedTuple):
    pid: int
    won: bool
    winner: str
    sent: float
    answered: float
    """It was claimed between these two moments of the monotonic clock."""


class Beats:
    def __init__(self, server: RedisServer, folder: Path, stack: ExitStack) -> None:
        self.server = server
        self.folder = folder
        self.stack = stack
        self.environment = os.environ | {"BEAT_REDIS": server.url(), "BEAT_INTERVAL": "0.3", "PYTHONPATH": str(ROOT)}
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)

    def python(self, *arguments: str) -> list[str]:
        return [*die_with_parent(), sys.executable, "-m", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.stack.enter_context((self.folder / f"{time.monotonic_ns()}.log").open("wb"))
        command = self.python("celery", "-A", "tests.celery.beat_app", *arguments)
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        self.stack.callback(_kill, process)
        return process

    def ticks(self) -> list[Tick]:
        return [Tick(*json.loads(one)) for one in self.server.command("LRANGE", "ticks", 0, -1)]

    def until(self, what: str, condition: Any) -> list[Tick]:
        deadline = time.monotonic() + TIMEOUT
        while not condition(ticks := self.ticks()):
            assert time.monotonic() < deadline, f"never {what}: {ticks}\n{self.logs()}"
            time.sleep(0.05)
        return ticks

    def logs(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in sorted(self.folder.glob("*.log")))

    def assert_each_published_once(self, ticks: list[Tick], killed: int = 0) -> None:
        """Assert that no two beats publish one tick, and that no tick is lost: a claim covers the other beats' ticks
        for INTERVAL_SHARE of the interval, and no longer. A beat that is killed may not have recorded its last
        claim."""
        covered = INTERVAL_SHARE * float(self.environment["BEAT_INTERVAL"])
        for before, after in combinations(ticks, 2):
            if before.pid == after.pid and before.winner == after.winner:
                assert not before.won, ticks
                assert after.sent - before.answered < covered + 0.01, ticks
            if before.pid != after.pid and before.won and after.won:
                assert max(before.answered, after.answered) - min(before.sent, after.sent) > covered - 0.01, ticks
        winners = {tick.winner for tick in ticks}
        self.until("claimed", lambda now: len(winners - {tick.winner for tick in now if tick.won}) <= killed)
        won = [tick.winner for tick in self.ticks() if tick.won]
        assert len(won) == len(set(won)), ticks


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its children, such as an embedded beat."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def beats(redis_executable: None, tmp_path: Path) -> Iterator[Beats]:
    with ExitStack() as stack:
        yield Beats(stack.enter_context(RedisServer()), tmp_path, stack)


def both_beats_have(ticks: list[Tick], count: int) -> bool:
    pids = [tick.pid for tick in ticks]
    return len(set(pids)) == 2 and all(pids.count(pid) >= count for pid in set(pids))


SCHEDULERS = {
    "persistent": ["beat", "-S", "celery.beat:PersistentScheduler"],
    "database": ["beat", "-S", "django_celery_beat.schedulers:DatabaseScheduler"],
    "embedded": ["worker", "-B", "-P", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat"],
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_tick_of_two_beats_is_published_once(beats: Beats, scheduler: str) -> None:
    command = SCHEDULERS[scheduler]
    if scheduler == "database":
        beats.environment |= {
            "DJANGO_SETTINGS_MODULE": "tests.celery.beat_settings",
            "BEAT_DATABASE": str(beats.folder / "schedule.sqlite3"),
            "BEAT_INTERVAL": "1",  # in whole seconds
        }
        subprocess.run(beats.python("django", "migrate", "-v0"), env=beats.environment, check=True, cwd=ROOT)
    for name in "ab":
        extra = {"persistent": ["-s", f"schedule-{name}"], "embedded": ["-s", f"schedule-{name}", "-n", f"{name}@here"]}
        pid = [] if scheduler == "embedded" else ["--pidfile", ""]
        beats.start(*command, *extra.get(scheduler, []), *pid, "-l", "INFO")
    count = 4 if scheduler == "database" else 10
    beats.assert_each_published_once(beats.until(f"{count} ticks of each", lambda ticks: both_beats_have(ticks, count)))


def test_killed_beat_is_replaced_by_the_other(beats: Beats) -> None:
    """The claim of a killed beat ends before the next tick but one."""
    processes = [beats.start("beat", "-S", "celery.beat:Scheduler", "--pidfile", "") for _ in "ab"]
    ticks = beats.until("five ticks of each", lambda ticks: both_beats_have(ticks, 5))
    winner = next(tick.pid for tick in reversed(ticks) if tick.won)
    (dead,) = [process for process in processes if process.pid == winner]
    dead.kill()
    dead.wait()
    killed = len(beats.ticks())
    ticks = beats.until("five more", lambda ticks: len(ticks) >= killed + 5)
    beats.assert_each_published_once(ticks, killed=1)
    after = ticks[killed:]
    assert {tick.pid for tick in after} == {process.pid for process in processes} - {winner}
    assert len({tick.winner for tick in after if not tick.won}) <= 1
    claimed = {tick.winner for tick in beats.ticks() if tick.won}
    messages = beats.server.command("LRANGE", "celery", 0, -1)
    published = [json.loads(message)["headers"]["id"] for message in messages]
    assert len(published) == len(set(published))
    assert set(published) <= {tick.winner for tick in beats.ticks() if tick.won}
    assert len(claimed - set(published)) <= 2  # claimed but not yet published: when the beat was killed, and now

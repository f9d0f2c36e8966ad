"""Forked processes, and the journal that they write."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from typing import Any, Self

import redis
from family_report import Event

PATIENCE = 30.0
"""Seconds until an expected event counts as missing."""


class SceneFailed(Exception):
    """A process failed, or an expected event doesn't happen."""


class Crew:
    """The processes of one form. At the end of the block they are killed, by pid.

    The process that starts them holds no lock, so that it has no thread when it forks.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.context = multiprocessing.get_context("fork")
        self.go = self.context.Event()
        self.processes: list[ForkProcess] = []
        self.kills: dict[int, float] = {}  # by pid
        self._journal = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 - closed at the end of the block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self._journal.close()

    def client(self) -> Any:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def start(self, work: Callable[..., None], *arguments: Any) -> ForkProcess:
        process = self.context.Process(target=self._live, args=(work, *arguments), daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def _live(self, work: Callable[..., None], *arguments: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is sent to children, too; the parent ends them
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        work(self, *arguments)

    def kill(self, process: ForkProcess) -> None:
        assert process.pid is not None
        process.kill()
        self.kills[process.pid] = time.monotonic()
        process.join()

    def note(self, what: str, of: int = 0) -> None:
        self._journal.write(f"{what} {of} {time.monotonic()}\n".encode())  # one write, which others don't interrupt

    def events(self) -> list[Event]:
        size = os.fstat(self._journal.fileno()).st_size
        lines = os.pread(self._journal.fileno(), size, 0).decode().splitlines()
        return [Event(what, int(of), float(at)) for what, of, at in map(str.split, lines)]

    def count(self, what: str) -> int:
        return sum(event.what == what for event in self.events())

    def wait(self, what: str, there: Callable[[], bool], patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not there():
            if any(one.exitcode and one.pid not in self.kills for one in self.processes):
                raise SceneFailed(f"A process failed before {what}.")
            if time.monotonic() > deadline:
                raise SceneFailed(f"Waited {patience:.0f} s in vain for {what}.")
            time.sleep(0.005)

    def wait_for(self, what: str, times: int) -> None:
        self.wait(f"{times} x {what}", lambda: self.count(what) >= times)

    def join(self) -> None:
        self.wait("the end of the processes", lambda: not any(process.is_alive() for process in self.processes))

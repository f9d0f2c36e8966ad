"""Starts the workers, kills and stops them at random moments given by a seed, and always ends them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic as now
from typing import IO, Self

from tests.chaos.fuzz.history import BEGIN, END, KILL, RESUME, STOP, History, Mark, Signal, watch
from tests.chaos.fuzz.worker import Config

ROOT = Path(__file__).parents[3]

LONG_STOP = (1.3, 2.0)
"""Seconds, longer than the lease: a holder loses the lock."""
SHORT_STOP = (0.2, 0.6)
"""A holder keeps it."""

START_SECONDS = 60.0
END_SECONDS = 60.0
"""The maximum until all workers are ready, and until all have ended."""


@dataclass
class Scenario:
    """The workers, and the signals to them."""

    config: Config
    """The configuration of every worker, apart from its number."""
    seconds: float
    seed: int
    workers: int = 8
    pause: tuple[float, float] = (0.8, 1.2)
    """Seconds between two signals, chosen at random in this range."""
    aimed: float = 0.4
    """The share of the signals that go to the process that seems to hold the lock."""
    kills: float = 0.4
    long_stops: float = 0.4
    """Shares of the signals; the others are short stops."""


class WorkerFailed(Exception):
    """A worker ended by itself, or doesn't start or end."""


class Worker:
    def __init__(self, config: Config, stderr: IO[bytes]) -> None:
        self.number = config.worker
        self.back = 0.0
        """When a stopped worker has to continue."""
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fuzz.worker", str(replace(config, parent=os.getpid()))],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
        )
        self._ready = False

    def ready(self, patience: float = 0.0) -> bool:
        assert self.process.stdout
        if not self._ready and select.select([self.process.stdout], [], [], patience)[0]:
            self._ready = self.process.stdout.read(6) == b"ready\n"
        return self._ready

    def stop(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise WorkerFailed(f"worker {self.number} ended by itself with status {self.process.returncode}")

    def resume(self) -> None:
        self.back = 0.0
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class Nemesis:
    """`with Nemesis(...) as nemesis: nemesis.run()`; afterwards the history has everything, and no worker is left."""

    def __init__(
        self, scenario: Scenario, history: History, holder: Callable[[], int | None], stderr: IO[bytes]
    ) -> None:
        self._scenario = scenario
        self._history = history
        self._holder = holder
        self._stderr = stderr
        self._random = Random(scenario.seed)
        self._numbers = count(1)
        self._workers: list[Worker] = []
        self._over = threading.Event()
        self._watch = threading.Thread(target=watch, args=(history, self._over), daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._over.set()
        self._watch.join()

    def run(self) -> None:
        """Run the scenario.

        Raises:
            WorkerFailed: a worker ended by itself, or doesn't start or end as it should.
        """
        for _ in range(self._scenario.workers):
            self._start()
        give_up = now() + START_SECONDS
        for worker in self._workers:
            if not worker.ready(max(0.0, give_up - now())):
                raise WorkerFailed(f"worker {worker.number} doesn't start")
        self._history.write(Mark(BEGIN))
        end = now() + self._scenario.seconds
        next_signal = now() + self._random.uniform(*self._scenario.pause)
        while now() < end:
            time.sleep(max(0.0, min([end, next_signal, *self._returns()]) - now()))
            for worker in self._workers:
                if worker.back and now() >= worker.back:
                    self._resume(worker)
                elif not worker.back:
                    self._check(worker)
            if now() >= next_signal:
                self._send_signal()
                next_signal = now() + self._random.uniform(*self._scenario.pause)
        self._finish()

    def _start(self) -> None:
        number = next(self._numbers)
        self._workers.append(
            Worker(replace(self._scenario.config, worker=number, seed=self._scenario.seed), self._stderr)
        )

    def _returns(self) -> list[float]:
        return [worker.back for worker in self._workers if worker.back]

    def _check(self, worker: Worker) -> None:
        status = worker.process.poll()
        if status is not None:
            raise WorkerFailed(f"worker {worker.number} ended by itself with status {status}")

    def _send_signal(self) -> None:
        """Kill a running worker, or stop it for a while."""
        candidates = [worker for worker in self._workers if not worker.back and worker.ready()]
        if len(candidates) < 2:
            return
        target = self._random.choice(candidates)
        draw = self._random.random()
        length = self._random.uniform(
            *(LONG_STOP if draw < self._scenario.kills + self._scenario.long_stops else SHORT_STOP)
        )
        if self._random.random() < self._scenario.aimed:
            holder = self._holder()
            target = next((worker for worker in candidates if worker.process.pid == holder), target)
        at = now()
        if draw < self._scenario.kills:
            target.kill()
            self._note(target, KILL, at)
            self._workers.remove(target)
            self._start()
        else:
            target.stop()
            target.back = now() + length
            self._note(target, STOP, at)

    def _note(self, target: Worker, what: str, at: float) -> None:
        """Its last request may still be on the way when the lock's server is asked for the first time."""
        hit = self._holder() == target.process.pid
        if not hit:
            time.sleep(0.005)
            hit = self._holder() == target.process.pid
        self._history.write(Signal(target.number, what, at, hit))

    def _resume(self, worker: Worker) -> None:
        worker.resume()
        self._history.write(Signal(worker.number, RESUME, now()))

    def _finish(self) -> None:
        for worker in self._workers:
            if worker.back:
                self._resume(worker)
        self._history.write(Mark(END))
        for worker in self._workers:
            assert worker.process.stdin
            worker.process.stdin.close()
        give_up = now() + END_SECONDS
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, give_up - now()))
            status = worker.process.poll()
            if status != 0:
                raise WorkerFailed(f"worker {worker.number} " + ("hangs" if status is None else f"ended with {status}"))

"""Starts the workers, kills and stops them as a seed says, and ends them, whatever happens."""

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

from tests.chaos.fuzz.journal import BEGIN, END, GO_ON, KILL, STOP, Journal, Mark, Signal, watch
from tests.chaos.fuzz.worker import Orders

ROOT = Path(__file__).parents[3]

LONG_STOP = (1.3, 2.0)
"""Seconds, longer than the lease: whoever holds the lock loses it."""
SHORT_STOP = (0.2, 0.6)
"""He keeps it."""

START_SECONDS = 60.0
END_SECONDS = 60.0
"""At most so long until all are ready, and until all have ended."""


@dataclass
class Play:
    """What is played."""

    orders: Orders
    """For every worker; its number is put in."""
    seconds: float
    seed: int
    workers: int = 8
    pause: tuple[float, float] = (0.8, 1.2)
    """Between two signals."""
    aimed: float = 0.4
    """The share of the signals that go to whoever seems to hold the lock."""
    kills: float = 0.4
    long_stops: float = 0.4
    """Shares of the signals; the others are short stops."""


class Stopped(Exception):
    """A worker that should run doesn't; the message says how it ended."""


class Worker:
    def __init__(self, orders: Orders, stderr: IO[bytes]) -> None:
        self.number = orders.worker
        self.back = 0.0
        """When it shall go on, if it is stopped."""
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fuzz.worker", str(replace(orders, parent=os.getpid()))],
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
        """Returns when it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise Stopped(f"worker {self.number} ended by itself with status {self.process.returncode}")

    def go_on(self) -> None:
        self.back = 0.0
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class Stage:
    """`with Stage(...) as stage: stage.run()`; afterwards the journal has everything, and no worker is left."""

    def __init__(self, play: Play, journal: Journal, holder: Callable[[], int | None], stderr: IO[bytes]) -> None:
        self._play = play
        self._journal = journal
        self._holder = holder
        self._stderr = stderr
        self._chance = Random(play.seed)
        self._numbers = count(1)
        self._workers: list[Worker] = []
        self._over = threading.Event()
        self._watch = threading.Thread(target=watch, args=(journal, self._over), daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._over.set()
        self._watch.join()

    def run(self) -> None:
        """Play it all.

        Raises:
            Stopped: a worker ended by itself, or doesn't start or end as it should.
        """
        for _ in range(self._play.workers):
            self._start()
        give_up = now() + START_SECONDS
        for worker in self._workers:
            if not worker.ready(max(0.0, give_up - now())):
                raise Stopped(f"worker {worker.number} doesn't start")
        self._journal.write(Mark(BEGIN))
        end = now() + self._play.seconds
        strike = now() + self._chance.uniform(*self._play.pause)
        while now() < end:
            time.sleep(max(0.0, min([end, strike, *self._returns()]) - now()))
            for worker in self._workers:
                if worker.back and now() >= worker.back:
                    self._go_on(worker)
                elif not worker.back:
                    self._check(worker)
            if now() >= strike:
                self._strike()
                strike = now() + self._chance.uniform(*self._play.pause)
        self._finish()

    def _start(self) -> None:
        number = next(self._numbers)
        self._workers.append(Worker(replace(self._play.orders, worker=number, seed=self._play.seed), self._stderr))

    def _returns(self) -> list[float]:
        return [worker.back for worker in self._workers if worker.back]

    def _check(self, worker: Worker) -> None:
        status = worker.process.poll()
        if status is not None:
            raise Stopped(f"worker {worker.number} ended by itself with status {status}")

    def _strike(self) -> None:
        """Kill a running worker, or stop it for a while."""
        victims = [worker for worker in self._workers if not worker.back and worker.ready()]
        if len(victims) < 2:
            return
        victim = self._chance.choice(victims)
        draw = self._chance.random()
        length = self._chance.uniform(*(LONG_STOP if draw < self._play.kills + self._play.long_stops else SHORT_STOP))
        if self._chance.random() < self._play.aimed:
            holder = self._holder()
            victim = next((worker for worker in victims if worker.process.pid == holder), victim)
        at = now()
        if draw < self._play.kills:
            victim.kill()
            self._note(victim, KILL, at)
            self._workers.remove(victim)
            self._start()
        else:
            victim.stop()
            victim.back = now() + length
            self._note(victim, STOP, at)

    def _note(self, victim: Worker, what: str, at: float) -> None:
        """Its last request may still be on the way when the lock's server is asked for the first time."""
        hit = self._holder() == victim.process.pid
        if not hit:
            time.sleep(0.005)
            hit = self._holder() == victim.process.pid
        self._journal.write(Signal(victim.number, what, at, hit))

    def _go_on(self, worker: Worker) -> None:
        worker.go_on()
        self._journal.write(Signal(worker.number, GO_ON, now()))

    def _finish(self) -> None:
        for worker in self._workers:
            if worker.back:
                self._go_on(worker)
        self._journal.write(Mark(END))
        for worker in self._workers:
            assert worker.process.stdin
            worker.process.stdin.close()
        give_up = now() + END_SECONDS
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, give_up - now()))
            status = worker.process.poll()
            if status != 0:
                raise Stopped(f"worker {worker.number} " + ("hangs" if status is None else f"ended with {status}"))

"""Real Celery workers, each a process with pool children; all end when the test process ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Self

import celery

from tests.celery.app import MODULE, Config
from tests.celery.journal import Journal
from tools.processes import die_with_parent

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """A Celery worker in a process of its own."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        pool: str = "prefork",
        concurrency: int = 2,
        options: tuple[str, ...] = (),
    ) -> None:
        self.name = f"n{uuid.uuid4().hex[:8]}"
        self.config = {**config, "name": self.name}
        self.log = folder / f"{self.name}.log"
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        environment |= {"CELERY_TESTS": json.dumps(self.config), "PYTHONUNBUFFERED": "1", **config.get("environ", {})}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = f"celery -A {MODULE} worker -P {pool} -c {concurrency} -n {self.host} -l WARNING"
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*die_with_parent(), sys.executable, "-m", *command.split(), *quiet, *options],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    @property
    def host(self) -> str:
        return f"{self.name}@test"

    def ready(self, journal: Journal) -> Self:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"The worker didn't start:\n{self.tail()}"
            return bool(journal.entries(self.name, "ready"))

        journal.until(is_ready, self.name, "a ready worker", 60)
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it, as a power cut does. Linux kills its children with it, as Celery requests."""
        self.process.kill()
        self.process.wait()

    def ended(self, seconds: float = 15) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        assert self.process.poll() is not None, f"The worker is still there:\n{self.tail()}"

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def celery_version() -> tuple[int, ...]:
    return tuple(int(part) for part in celery.__version__.split(".")[:2])


def worker_pids(worker: WorkerProcess) -> list[Any]:
    """The pids of the pool's children, from Linux."""
    task = Path(f"/proc/{worker.process.pid}/task")
    return [int(pid) for thread in task.iterdir() for pid in (thread / "children").read_text().split()]

"""Two workers and two beats, some of which are killed: how often jobs run, with plain tasks and with those of
celery_locks.

    python jobs_demo.py       the exit code says whether anything ran twice, at once, or not at all

Redis, the database and all processes are the demo's own, and gone when it ends.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo import BOLD, DIM, GREEN, RED, paint, rule, run, status
from jobs_report import Event, Kill, confirmations, explanation, failures, heading, line, ticks

from tools.processes import die_with_parent
from tools.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent
ORDERS = 20
CLICKS = 3
TICKS = 8  # of plain jobs, before a beat is killed
AFTER = 3  # runs of the beat's job that must follow the last kill
PATIENCE = 45.0
STOP_SECONDS = 5.0
KINDS = ("plain", "shop")


class EventMissing(Exception):
    """An expected event doesn't happen."""


def main() -> int:
    return run(show, EventMissing)


def show(stack: ExitStack) -> int:
    stage = Stage(stack)
    import celery  # noqa: PLC0415 - after Django is set up

    print(f"\n2 workers of 2 processes, 2 beats; {ORDERS} orders, each confirmed by {CLICKS} clicks")
    versions = f"Celery {celery.__version__}, Django {django.__version__}, Python {platform.python_version()}"
    print(paint(versions, DIM), end="\n\n")
    stage.open()
    orders = stage.take_orders()
    clicks = stage.submit_repeatedly(orders)
    stage.kill_run("shop.confirm_order")
    stage.kill_run("shop.take_stock")
    stage.wait("some ticks of both beats", lambda: len(stage.events("sent", "plain.take_stock")) >= TICKS)
    stage.kill_beat()
    for thread in clicks:
        thread.join()
    stage.wait("the end of all confirmations", lambda: stage.confirmed(orders))
    last = stage.kills[-1].at
    stage.wait(
        "ticks after the last kill",
        lambda: sum(event.at > last for event in stage.events("began", "shop.take_stock")) >= AFTER,
    )
    until = time.time()
    stage.close()
    status("")
    return judge(stage, orders, until)


def judge(stage: Stage, orders: list[int], until: float) -> int:
    events = stage.journal()
    plain, ours = (
        [
            ticks(f"{kind}.take_stock", events, stage.kills, until),
            confirmations(f"{kind}.confirm_order", events, stage.kills, orders, CLICKS),
        ]
        for kind in KINDS
    )
    wrong = failures(plain, ours)
    mails = sum(file.read_text().count("\nSubject: ") for file in stage.mails.iterdir())
    if mails != sum(counts.finished for counts in (plain[1], ours[1])):
        wrong.append(f"There are {mails} mails.")
    print(paint(heading(), BOLD))
    print(paint(rule() * len(heading()), DIM))
    for counts in plain:
        print(paint(line(counts), RED))
    for counts in ours:
        print(paint(line(counts), RED if wrong else GREEN))
    if wrong:
        print("", *wrong, stage.logs(), sep="\n", file=sys.stderr)
        return 1
    print("", textwrap.fill(explanation(plain, ours, stage.freed_after()), len(heading())), "", sep="\n")
    return 0


class Stage:
    """The processes, and the journal that they write."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-")))
        self.file = self.folder / "journal"
        self.file.touch()
        self.mails = self.folder / "mails"
        self.mails.mkdir()
        server = stack.enter_context(RedisServer())
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "DATABASE": str(self.folder / "db.sqlite3"),
            "REDIS_URL": server.url(0),
            "CELERY_BROKER_URL": server.url(1),
            "JOURNAL": str(self.file),
            "MAILS": str(self.mails),
        }
        django.setup()
        self.kills: list[Kill] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.beats: list[subprocess.Popen[bytes]] = []
        stack.callback(self.close)

    def open(self) -> None:
        from django.core.management import call_command  # noqa: PLC0415 - after Django is set up
        from project.celery import app  # noqa: PLC0415

        call_command("migrate", verbosity=0)
        self.app = app
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        for name in ("one", "two"):
            self.start(name, "worker", "-c", "2", "-Q", "celery,plain", "-n", f"{name}@shop", *quiet)
        self.wait("the workers", lambda: len(app.control.ping(timeout=0.5)) == 2)
        for name in ("three", "four"):
            self.beats.append(self.start(name, "beat", "-s", str(self.folder / name), "--pidfile", ""))
        self.wait("the beats", lambda: len({one.pid for one in self.events("sent", "plain.take_stock")}) == 2)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [*die_with_parent(), sys.executable, "-m", "celery", "-A", "project", *arguments, "-l", "INFO"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=Path(__file__).parent, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def close(self) -> None:
        """Terminate the processes, and kill those that don't end in time."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def take_orders(self) -> list[int]:
        from shop.checkout import sell  # noqa: PLC0415 - after Django is set up
        from shop.models import Product  # noqa: PLC0415

        product = Product.objects.earliest("pk")
        return [order.pk for _ in range(ORDERS) if (order := sell(product.pk)[1])]

    def submit_repeatedly(self, orders: list[int]) -> list[threading.Thread]:
        """Submit each order several times, all at the same moment, as impatient customers do."""
        from shop import plain, tasks  # noqa: PLC0415 - after Django is set up

        def ask() -> None:
            for order in orders:
                plain.confirm_order.delay(order)
                tasks.confirm_order.delay(order)

        threads = [threading.Thread(target=ask) for _ in range(CLICKS)]
        for thread in threads:
            thread.start()
        return threads

    def kill_run(self, task: str) -> None:
        """Send SIGKILL to a worker's child during a run."""

        def killed() -> bool:
            ended = {one.id for one in self.events("ended", task)}
            going = [one for one in self.events("began", task) if one.id not in ended]
            if not going:
                return False
            run = going[-1]
            os.kill(run.pid, signal.SIGKILL)
            at = time.time()
            if any(one.id == run.id for one in self.events("ended", task)):
                return False  # too late
            self.kills.append(Kill(run.pid, task, run.id, at))
            return True

        self.wait(f"a run of {task}", killed)

    def kill_beat(self) -> None:
        """Kill the beat that sends the messages."""
        *_, last = self.events("sent", "shop.take_stock")
        (beat,) = [process for process in self.beats if process.pid == last.pid]
        beat.kill()
        beat.wait()
        self.kills.append(Kill(beat.pid, "", "", time.time()))

    def confirmed(self, orders: list[int]) -> bool:
        ends = [{one.key for one in self.events("ended", f"{kind}.confirm_order")} for kind in KINDS]
        sent = len(self.events("sent", "plain.confirm_order"))
        return len(self.events("ended", "plain.confirm_order")) >= sent and all(set(orders) <= done for done in ends)

    def freed_after(self) -> float:
        """Seconds from the kill of a run to the release of its key; the maximum."""
        return max(
            one.at - kill.at for kill in self.kills for one in self.events("freed", kill.task) if one.id == kill.id
        )

    def journal(self) -> list[Event]:
        lines = self.file.read_text().split("\n")[:-1]  # the last line may be incomplete
        return [Event(**json.loads(line)) for line in lines]

    def events(self, what: str, task: str) -> list[Event]:
        return [event for event in self.journal() if event.what == what and event.task == task]

    def wait(self, what: str, there: Callable[[], Any]) -> None:
        status(f"waiting for {what}")
        deadline = time.monotonic() + PATIENCE
        while not there():
            if time.monotonic() > deadline:
                raise EventMissing(f"{self.logs()}\nWaited {PATIENCE:.0f} s in vain for {what}.")
            time.sleep(0.01)
        status("")

    def logs(self) -> str:
        tails = (log.read_text(errors="replace").splitlines()[-25:] for log in sorted(self.folder.glob("*.log")))
        return "\n".join("\n".join(tail) for tail in tails)


if __name__ == "__main__":
    sys.exit(main())

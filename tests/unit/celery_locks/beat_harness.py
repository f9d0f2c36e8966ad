"""Beats that tests step one by one: real schedulers with frozen clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import freezegun
from celery import Celery, Task
from celery.beat import Scheduler
from celery.result import AsyncResult
from celery.schedules import BaseSchedule, crontab, schedule

from celery_locks import beat

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class ClaimingTask(Task):
    """Claims ticks like the tasks of the package, and publishes into a journal, ``messages_per_call`` for each call."""

    name = "report"
    lock_using = "default"
    journal: list[tuple[float, str]]
    """Seconds after noon, and the name of the beat that published."""
    by = ""
    messages_per_call = 1

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        for _ in range(self.messages_per_call):
            result = self._publish(uuid4().hex)
        return result

    def _publish(self, id: str) -> Any:
        tick = beat.current(self.name)
        claim = beat.claim(self.lock_using, tick, id) if tick is not None else None
        if claim is not None and not claim.won:
            return AsyncResult(claim.winner, app=self.app)
        self.journal.append((round(seconds_since_noon(), 3), self.by))
        return AsyncResult(id, app=self.app)


class Beat:
    """One beat, whose clock has an offset. A restarted beat knows only the last run that it is given."""

    def __init__(self, harness: BeatHarness, name: str, clock_offset: float) -> None:
        self.harness = harness
        self.name = name
        self.clock_offset = timedelta(seconds=clock_offset)
        self.paused = False

    def now(self) -> datetime:
        return datetime.now(UTC) + self.clock_offset

    def start(self, plan: BaseSchedule, last_run_at: datetime | None = None, **entry: Any) -> Beat:
        plan.nowfun = self.now
        self.scheduler = Scheduler(self.harness.app, lazy=True)
        self.scheduler.add(
            **{"name": "hourly", "task": "report", "schedule": plan, "last_run_at": last_run_at, **entry}
        )
        beat.attach(self.scheduler)
        return self

    def step(self) -> None:
        """Publish the due entries."""
        self.harness.task.by = self.name
        while not self.paused and self.scheduler.tick() == 0:
            pass


class BeatHarness:
    """The frozen clock, the app, the beats and the published messages."""

    def __init__(self, frozen: freezegun.api.FrozenDateTimeFactory) -> None:
        self.frozen = frozen
        self.app = Celery("beats", broker="memory://", set_as_current=False)
        self.app.register_task(ClaimingTask())
        self.task = self.app.tasks["report"]
        self.runs: list[tuple[float, str]] = []
        self.task.journal = self.runs

    def beat(self, name: str, clock_offset: float = 0.0) -> Beat:
        return Beat(self, name, clock_offset)

    def beats(self, plan: Callable[[], BaseSchedule], names: str = "ab", **entry: Any) -> list[Beat]:
        """Start a beat for each letter of ``names``."""
        return [self.beat(name).start(plan(), **entry) for name in names]

    def every(self, seconds: float, **kwargs: Any) -> schedule:
        return schedule(seconds, app=self.app, **kwargs)

    def minutely(self) -> schedule:
        return self.every(60)

    def cron(self, *args: Any, **kwargs: Any) -> crontab:
        return crontab(*args, app=self.app, **kwargs)

    def run_until(
        self, seconds: float, beats: Iterable[Beat], step: float = 1.0, at: Callable[[], object] = int
    ) -> None:
        """Advance the clock to this many seconds after noon; each beat wakes up at each step."""
        while seconds_since_noon() < seconds:
            self.frozen.tick(step)
            at()
            for one in beats:
                one.step()

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.runs]


def seconds_since_noon() -> float:
    """The seconds of the frozen clock since noon."""
    return (datetime.now(UTC) - NOON).total_seconds()

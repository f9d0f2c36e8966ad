"""Beats stepped by hand: real schedulers, on clocks that the test moves."""

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
    """Claims ticks as the tasks of the package do, and publishes into a journal; ``fan`` messages for each call."""

    name = "report"
    lock_using = "default"
    journal: list[tuple[float, str]]
    """Seconds after noon, and the beat that published."""
    by = ""
    fan = 1

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        for _ in range(self.fan):
            result = self._publish(uuid4().hex)
        return result

    def _publish(self, id: str) -> Any:
        tick = beat.current(self.name)
        claim = beat.claim(self.lock_using, tick, id) if tick is not None else None
        if claim is not None and not claim.won:
            return AsyncResult(claim.winner, app=self.app)
        self.journal.append((round(stage_seconds(), 3), self.by))
        return AsyncResult(id, app=self.app)


class Beat:
    """One beat, whose clock is off by some seconds; started again, it knows what it is given as its last run."""

    def __init__(self, stage: Stage, name: str, off: float) -> None:
        self.stage = stage
        self.name = name
        self.off = timedelta(seconds=off)
        self.paused = False

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off

    def starts(self, plan: BaseSchedule, last_run_at: datetime | None = None, **entry: Any) -> Beat:
        plan.nowfun = self.now
        self.scheduler = Scheduler(self.stage.app, lazy=True)
        self.scheduler.add(
            **{"name": "hourly", "task": "report", "schedule": plan, "last_run_at": last_run_at, **entry}
        )
        beat.attach(self.scheduler)
        return self

    def step(self) -> None:
        """Publish what is due."""
        self.stage.task.by = self.name
        while not self.paused and self.scheduler.tick() == 0:
            pass


class Stage:
    """The clock, the app and what was published."""

    def __init__(self, frozen: freezegun.api.FrozenDateTimeFactory) -> None:
        self.frozen = frozen
        self.app = Celery("beats", broker="memory://", set_as_current=False)
        self.app.register_task(ClaimingTask())
        self.task = self.app.tasks["report"]
        self.runs: list[tuple[float, str]] = []
        self.task.journal = self.runs

    def beat(self, name: str, off: float = 0.0) -> Beat:
        return Beat(self, name, off)

    def beats(self, plan: Callable[[], BaseSchedule], names: str = "ab", **entry: Any) -> list[Beat]:
        """A beat for each letter, started now."""
        return [self.beat(name).starts(plan(), **entry) for name in names]

    def every(self, seconds: float, **kwargs: Any) -> schedule:
        return schedule(seconds, app=self.app, **kwargs)

    def minutely(self) -> schedule:
        return self.every(60)

    def cron(self, *args: Any, **kwargs: Any) -> crontab:
        return crontab(*args, app=self.app, **kwargs)

    def until(self, seconds: float, beats: Iterable[Beat], step: float = 1.0, at: Callable[[], object] = int) -> None:
        """Move the clock to this many seconds after noon; at each step each beat wakes up."""
        while stage_seconds() < seconds:
            self.frozen.tick(step)
            at()
            for one in beats:
                one.step()

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.runs]


def stage_seconds() -> float:
    """Since noon."""
    return (datetime.now(UTC) - NOON).total_seconds()

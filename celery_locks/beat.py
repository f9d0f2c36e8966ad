"""De-duplicates Celery beat: several beats with the same schedule publish each tick once, with any scheduler.

A *tick* is one due time of a schedule's entry. When a beat starts, the ``apply_async`` of its scheduler is wrapped, so
that the ``apply_async`` of a task knows the tick for which it is called. The first beat *claims* the tick with a
record, and the others find that claim. This only saves messages: if a tick is published twice, because the store was
down or the wrapping failed, the lock of the task still prevents a second run.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from celery import signals

from django_redis_locks import LockBackendError, LockError, Record, RecordRef, clock, locks

from .schedule import TOLERANCE, due

if TYPE_CHECKING:
    from celery.beat import ScheduleEntry, Scheduler

VERSION: Final = 1

STORE_WAIT: Final = 1.0
"""Seconds that beat waits for a store that refuses. All other entries of the schedule are delayed by that."""

RETRY_AFTER: Final = 5.0
"""Seconds after a failure of the store for which ticks are published without a claim."""

_ATTEMPTS: Final = 10

_log = logging.getLogger("celery_locks.beat")


class Tick:
    """An entry of the schedule that is due.

    Attributes:
        entry: the name of the entry.
        task: the name of its task.
        ttl: seconds that its claim lasts.
        slot: the Unix time at which it was due; None for an interval.
        beat: the id of the scheduler.
    """

    __slots__ = ("beat", "claim", "entry", "slot", "task", "ttl")

    def __init__(self, entry: str, task: str, ttl: float, slot: float | None, beat: str) -> None:
        self.entry = entry
        self.task = task
        self.ttl = ttl
        self.slot = slot
        self.beat = beat
        self.claim: Claim | None = None
        """The claim of this tick. It is made once, though the task may publish several messages."""

    def __repr__(self) -> str:
        return f"<Tick of {self.entry!r}>"


class Claim:
    """The outcome of claiming a tick.

    Attributes:
        won: whether this beat publishes the tick.
        winner: the id of the task that is published for it.
        store_down: whether the store couldn't be reached; the next request would fail too.
    """

    __slots__ = ("_record", "_ref", "_tick", "store_down", "winner", "won")

    def __init__(
        self,
        tick: Tick,
        won: bool,
        winner: str,
        ref: RecordRef | None = None,
        record: Record | None = None,
        *,
        store_down: bool = False,
    ) -> None:
        self.won = won
        self.winner = winner
        self.store_down = store_down
        self._tick = tick
        self._ref = ref
        self._record = record

    def give_back(self) -> None:
        """Release the claim after a failed publish, so that another beat publishes the tick. Never raises."""
        if self._tick.claim is self:
            self._tick.claim = None
        record, self._record = self._record, None
        if self._ref is not None and record is not None:
            try:
                self._ref.drop(record)
            except LockError as failure:
                _log.warning("The claim of %r wasn't given back: %s", self._tick, failure)

    def __repr__(self) -> str:
        return f"<Claim {'won' if self.won else 'lost'}, {self.winner}>"


_current: ContextVar[Tick | None] = ContextVar("celery_locks_tick", default=None)

_down: dict[str, float] = {}
"""By alias: the time until which it isn't used, after its store couldn't be reached."""
clock.on_install(_down.clear)


def current(task: str | None = None) -> Tick | None:
    """The tick that beat publishes in this context; None if there is none, or if it isn't that of the named task."""
    tick = _current.get()
    return tick if tick is None or task is None or tick.task == task else None


def claim(using: str, tick: Tick, task_id: str) -> Claim:
    """Claim a tick for the task that is to be published. A second call for the same tick returns the same claim.

    If the store can't be reached, every beat wins, and the lock of the task prevents a second run.
    """
    if tick.claim is None:
        tick.claim = _claim(using, tick, task_id)
    return tick.claim


def _claim(using: str, tick: Tick, task_id: str) -> Claim:
    if clock.now() < _down.get(using, 0.0):
        return Claim(tick, True, task_id, store_down=True)
    fields = {"v": VERSION, "id": task_id, "slot": tick.slot, "for": tick.ttl, "beat": tick.beat}
    found: Record | None = None
    try:
        wait = min(locks[using].default_wait(tick.task), STORE_WAIT)
        ref = locks[using].record(f"tick:{tick.task}:{tick.entry}", name=tick.task, wait=wait)
        for _ in range(_ATTEMPTS):
            written = ref.put(found, fields, expire=tick.ttl)
            if written:
                return Claim(tick, True, task_id, ref, written.record)
            found = written.record
            if found is not None and covers(found, tick):
                winner = str(found.fields["id"])
                _log.debug("%r is published already, as task %s", tick, winner)
                return Claim(tick, False, winner)
    except LockError as failure:
        store_down = isinstance(failure, LockBackendError)
        if store_down:
            _down[using] = clock.now() + RETRY_AFTER
        _log.warning("%r is published without a claim: %s", tick, failure)
        return Claim(tick, True, task_id, store_down=store_down)
    return Claim(tick, True, task_id)


def covers(found: Record, tick: Tick) -> bool:
    """Whether an existing claim is for the same tick, or for a recent one of the same interval.

    A claim for another schedule doesn't count, so an entry that is changed from monthly to hourly doesn't pause for a
    month. A beat's own claim doesn't suppress its next tick, however late the last one was.
    """
    fields = found.fields
    slot, lasts = fields.get("slot"), fields.get("for")
    if not isinstance(fields.get("id"), str) or not isinstance(lasts, int | float):
        return False
    if tick.slot is not None:
        return isinstance(slot, int | float) and tick.slot <= slot + TOLERANCE
    age = lasts - found.lease_left
    return age < tick.ttl and fields.get("beat") != tick.beat


def attach(scheduler: Scheduler) -> None:
    """Wrap a scheduler's ``apply_async``, so that its ticks are claimed. Called for beat's own scheduler when it
    starts."""
    plain: Callable[..., Any] = scheduler.apply_async
    if hasattr(plain, "celery_locks"):  # an embedded beat sends both signals
        return
    beat = uuid4().hex

    @functools.wraps(plain)
    def apply_async(entry: ScheduleEntry, *args: Any, **kwargs: Any) -> Any:
        token = _current.set(_tick_of(scheduler, entry, beat))
        try:
            return plain(entry, *args, **kwargs)
        finally:
            _current.reset(token)

    apply_async.celery_locks = True  # type: ignore[attr-defined]
    scheduler.apply_async = apply_async  # type: ignore[method-assign]


def _tick_of(scheduler: Scheduler, entry: ScheduleEntry, beat: str) -> Tick | None:
    try:
        name, task, plan = entry.name, entry.task, entry.schedule
        if not name or not task or plan is None or not hasattr(scheduler.app.tasks.get(task), "lock_using"):
            return None
        found = due(plan, entry.last_run_at)
        return None if found is None else Tick(str(name), task, found.ttl, found.slot, beat)
    except Exception:  # noqa: BLE001 - schedules are user code
        _log.exception("The schedule of beat entry %r can't be read: each beat publishes its ticks", entry.name)
        return None


def _beat_starts(sender: Any, **_: object) -> None:
    try:
        attach(sender.scheduler)
    except Exception:  # noqa: BLE001 - Celery would hide it
        _log.exception(
            "The scheduler of this beat can't be wrapped: it publishes its ticks even if another beat does. "
            "The locks of the tasks still prevent a second run"
        )


signals.beat_init.connect(_beat_starts, dispatch_uid="celery_locks.beat", weak=False)
signals.beat_embedded_init.connect(_beat_starts, dispatch_uid="celery_locks.beat", weak=False)

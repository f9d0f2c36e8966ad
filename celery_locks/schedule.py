"""Identifies the tick of a beat schedule, and computes how long it counts as published.

A crontab is due at the same times in every beat: its tick is identified by its *slot*, the time at which it was due,
even if a beat is late or its clock is wrong. An interval has no such times, since each beat counts from its own start:
a tick counts as published if another beat's was less than an interval ago.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from celery.schedules import BaseSchedule, crontab, schedule, solar

INTERVAL_SHARE: Final = 0.9
"""Share of an interval for which a tick suppresses those of other beats. The remainder is for beats that aren't
punctual; it is too short for fewer than ten beats to publish in turns."""

SLOT_SHARE: Final = 1.5
"""Share of the time between two slots for which the earlier one is remembered: a beat with a slow clock, or one that
restarts, is late."""

UNKNOWN_SHARE: Final = 0.5
"""The same for other schedules, which may not be due at the same times in every beat."""

SHORTEST: Final = 0.01
"""The shortest claim in seconds."""

TOLERANCE: Final = 0.5
"""Seconds by which the times of the same slot may differ: they are computed from the clock, for a sunset not to the
microsecond. A slot may be due for beat that much earlier than it is here."""

_LONGEST: Final = 366 * 86400.0
"""Seconds: the limit of the search for the latest slot, and of its claim."""

_PAUSE: Final = timedelta(seconds=0.1)


class Due(NamedTuple):
    """A tick that is due.

    Attributes:
        slot: the Unix time at which it was due; None if other beats have other times.
        ttl: seconds for which it counts as published.
    """

    slot: float | None
    ttl: float


def due(plan: BaseSchedule, last_run_at: datetime | None) -> Due | None:
    """The tick of this schedule that is due now; None if the time to the next one is too short for a claim."""
    now = _now(plan).timestamp()
    if isinstance(plan, solar):
        now += TOLERANCE
    following = due_after(plan, now)
    if isinstance(plan, schedule):  # up to the next tick: a relative schedule may be due before a whole interval
        return _for(INTERVAL_SHARE * (following - now))
    if isinstance(plan, crontab | solar) or hasattr(plan, "clocked_time"):  # the latter is django-celery-beat's
        slot = _latest(plan, last_run_at, now, following)
        if slot is not None:
            once = following <= slot
            return Due(slot, 86400.0 if once else min(SLOT_SHARE * (following - slot), _LONGEST))
    return _for(UNKNOWN_SHARE * (following - now))


def due_after(plan: BaseSchedule, moment: float) -> float:
    """The Unix time at which a schedule is due next after a run at ``moment``."""
    for _ in range(3):
        now = _now(plan)
        left = plan.remaining_estimate(datetime.fromtimestamp(moment, now.tzinfo))  # from its own reading of the clock
        if _now(plan) - now < _PAUSE:
            break
    return now.timestamp() + left.total_seconds()


def _now(plan: BaseSchedule) -> datetime:
    return plan.maybe_make_aware(plan.now())


def _for(ttl: float) -> Due | None:
    return Due(None, min(ttl, _LONGEST)) if ttl >= SHORTEST else None


def _latest(plan: BaseSchedule, last_run_at: datetime | None, now: float, following: float) -> float | None:
    """The latest slot since the last run that is due; None if there is none, so the scheduler runs the entry otherwise.

    Schedules compute only the next slot, so the search starts further back each time. A beat that missed many slots
    publishes the latest one.
    """
    since = now - _LONGEST
    if last_run_at is not None:
        since = max(since, plan.maybe_make_aware(last_run_at).timestamp())
    span = max(following - now, 60.0)
    while True:
        start = max(now - span, since)
        slot = due_after(plan, start)
        if slot <= now:
            break
        if start <= since:
            return None
        span *= 2
    while slot < (later := due_after(plan, slot + TOLERANCE)) <= now:
        slot = later
    return slot

"""Identifies the tick of a beat schedule, and computes for how long it counts as published.

A crontab is due at the same times in every beat. Its tick is identified by its *slot*, the time at which it was due,
even if a beat is late or its clock is wrong. An interval has no such times, since each beat counts from its own start;
its tick counts as published if another beat published one less than an interval ago.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from celery.schedules import BaseSchedule, crontab, schedule, solar

INTERVAL_SHARE: Final = 0.9
"""Share of an interval for which a tick suppresses those of other beats. The remaining tenth tolerates beats that are
early. It is so short that fewer than ten beats can't take turns, each publishing too early."""

SLOT_SHARE: Final = 1.5
"""Share of the time between two slots for which the earlier one is remembered. It is more than 1, since a beat with a
slow clock, or one that restarts, is late."""

UNKNOWN_SHARE: Final = 0.5
"""The same for other kinds of schedules, which may not be due at the same times in every beat."""

SHORTEST: Final = 0.01
"""The shortest claim in seconds."""

TOLERANCE: Final = 0.5
"""Seconds by which the times of the same slot may differ, since they are computed from the clock, a sunset not to the
microsecond. So a slot may be due for beat by that much earlier than in this module."""

_LONGEST: Final = 366 * 86400.0
"""Seconds: the limit of the search for the latest slot, and of its claim."""

_PAUSE: Final = timedelta(seconds=0.1)
"""A computation that takes longer was interrupted between two readings of the clock, and is repeated."""


class Due(NamedTuple):
    """A tick that is due.

    Attributes:
        slot: the Unix time at which it was due; None if other beats have other times.
        ttl: seconds for which it counts as published.
    """

    slot: float | None
    ttl: float


def due(plan: BaseSchedule, last_run_at: datetime | None) -> Due | None:
    """The tick of a schedule that is due now; None if the next one is due too soon for a claim."""
    now = _now(plan).timestamp()
    if isinstance(plan, solar):
        now += TOLERANCE
    following = due_after(plan, now)
    if isinstance(plan, schedule):  # not of run_every: a relative schedule may be due before a whole interval
        return _without_slot(INTERVAL_SHARE * (following - now))
    if isinstance(plan, crontab | solar) or hasattr(plan, "clocked_time"):  # the latter is django-celery-beat's
        slot = _latest(plan, last_run_at, now, following)
        if slot is not None:
            once = following <= slot
            return Due(slot, 86400.0 if once else min(SLOT_SHARE * (following - slot), _LONGEST))
    return _without_slot(UNKNOWN_SHARE * (following - now))


def due_after(plan: BaseSchedule, moment: float) -> float:
    """The Unix time at which a schedule is due next after a run at ``moment``."""
    for _ in range(3):
        now = _now(plan)
        left = plan.remaining_estimate(datetime.fromtimestamp(moment, now.tzinfo))  # which reads the clock itself
        if _now(plan) - now < _PAUSE:
            break
    return now.timestamp() + left.total_seconds()


def _now(plan: BaseSchedule) -> datetime:
    return plan.maybe_make_aware(plan.now())


def _without_slot(ttl: float) -> Due | None:
    return Due(None, min(ttl, _LONGEST)) if ttl >= SHORTEST else None


def _latest(plan: BaseSchedule, last_run_at: datetime | None, now: float, following: float) -> float | None:
    """The latest slot since the last run; None if there is none: the scheduler runs the entry for another reason.

    Schedules can only compute the slot after a time, so the search starts at earlier times until it finds one. A beat
    that missed many slots publishes the latest one.
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

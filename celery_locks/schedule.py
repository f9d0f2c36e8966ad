"""Which tick of a beat schedule this is, and for how long it counts as done.

A crontab is due at the same moments everywhere: its tick is known by its *slot*, the moment at which it was due, whenever
a beat gets round to it and whatever that beat's clock says. An interval has no such moments, since each beat counts
from when it started: a tick is done if another beat's was less than an interval ago.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from celery.schedules import BaseSchedule, crontab, schedule, solar

INTERVAL_SHARE: Final = 0.9
"""Of an interval for which a tick keeps the other beats' away. The rest is for beats that aren't punctual, and too short for
fewer than ten of them to take turns."""

SLOT_SHARE: Final = 1.5
"""Of the distance between two slots for which the earlier one is remembered: a beat whose clock is slow, and one that
restarts, come to it late."""

UNKNOWN_SHARE: Final = 0.5
"""The same for a schedule of which we don't know whether it is due at the same moments everywhere."""

SHORTEST: Final = 0.01
"""A claim that is shorter isn't worth it."""

TOLERANCE: Final = 0.5
"""Slots that are so close are the same one: they are reckoned from the clock, and for a sunset not to the microsecond. One
that beat has found to have come may be ahead of us by so much."""

_LONGEST: Final = 366 * 86400.0
"""So far back a slot is looked for, and so long it is remembered at most."""

_PAUSE: Final = timedelta(seconds=0.1)


class Due(NamedTuple):
    """A tick that is due.

    Attributes:
        slot: when it was due, in seconds since 1970; None if that means nothing to another beat.
        ttl: for so many seconds it counts as done.
    """

    slot: float | None
    ttl: float


def due(plan: BaseSchedule, last_run_at: datetime | None) -> Due | None:
    """The tick of this schedule that is due now. None: it can't be told from the next one."""
    now = _now(plan).timestamp()
    if isinstance(plan, solar):
        now += TOLERANCE
    following = due_after(plan, now)
    if isinstance(plan, schedule):  # up to the next tick, not the whole interval: a relative one may be due earlier
        return _for(INTERVAL_SHARE * (following - now))
    if isinstance(plan, crontab | solar) or hasattr(plan, "clocked_time"):  # the latter is django-celery-beat's
        slot = _latest(plan, last_run_at, now, following)
        if slot is not None:
            once = following <= slot
            return Due(slot, 86400.0 if once else min(SLOT_SHARE * (following - slot), _LONGEST))
    return _for(UNKNOWN_SHARE * (following - now))


def due_after(plan: BaseSchedule, moment: float) -> float:
    """When a schedule is due next, if it was done at a moment."""
    for _ in range(3):
        now = _now(plan)
        left = plan.remaining_estimate(datetime.fromtimestamp(moment, now.tzinfo))  # up to a "now" of its own
        if _now(plan) - now < _PAUSE:
            break
    return now.timestamp() + left.total_seconds()


def _now(plan: BaseSchedule) -> datetime:
    return plan.maybe_make_aware(plan.now())


def _for(ttl: float) -> Due | None:
    return Due(None, min(ttl, _LONGEST)) if ttl >= SHORTEST else None


def _latest(plan: BaseSchedule, last_run_at: datetime | None, now: float, following: float) -> float | None:
    """The latest slot that has come, after the last run. None: none has, the scheduler has reasons of its own.

    Schedules only look ahead, so it is looked for from further and further back. A beat that was away for many slots
    makes up for the latest one.
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

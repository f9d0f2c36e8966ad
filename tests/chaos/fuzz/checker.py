"""Checks a history for violations of mutual exclusion, wrong reports to a holder, and lost wake-ups. Starvation is
checked by tests/chaos/test_fairness.py, and by the simulation.

A hold may end without its holder's doing in one way only: its lease runs out. A holder that was killed or stopped still
has the lock until then. So of any two holds that overlap in the history the older one

- must have been past the end of its lease, as it knew it itself, when the younger one's `acquire` returned;
- must have been killed or stopped, or the whole machine stood still;
- must be notified: by `grant.lost` before its exit is written, and by LockLost when it releases.

The same holds for an entry that is written late, after one with a higher fence: its process was stopped between.
A process that runs is never late: a lease that ends under a caller that wasn't stopped, by the nemesis or by a machine
without a turn for it, is a violation too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.chaos.fuzz.history import (
    END,
    LOST,
    RELEASED,
    RESUME,
    STOP,
    UNREACHABLE,
    Entry,
    Exit,
    Failed,
    Mark,
    Record,
    Refused,
    Signal,
)
from tests.chaos.fuzz.timeline import Hold, Timeline

GAP = 1.5
"""Seconds of running time from a release, or from a signal to the holder, to the next entry: the lease, the spread of
the retries, and a margin. Time in which the machine let one of the processes wait doesn't count."""


Pair: TypeAlias = tuple[Hold, Hold]
"""A hold, and one with a higher fence that overtook it."""


@dataclass
class Result:
    violations: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    fence: int = 0
    """The highest one."""

    def __str__(self) -> str:
        some = [*self.violations[:20], f"... {len(self.violations)} in all"]
        return "\n".join([str(self.counts), *(some if len(self.violations) > 20 else self.violations)])


def check(records: Iterable[Record], lease: float, *, grants: int = 0) -> Result:
    """Check a history. ``grants``: to how many waiters of a stopped process the lock may be granted, one after the other, as
    docs/explain/promises.md says. Each of these grants costs a lease."""
    timeline = Timeline(records)
    pairs = list(_overtaken(timeline))
    gaps = list(_gaps(timeline, pairs))
    violations = [
        *timeline.malformed,
        *_failures(timeline),
        *_overlaps(timeline),
        *(violation for pair in pairs for violation in _overtaking_violations(timeline, *pair)),
        *(violation for hold in timeline.holds for violation in _wrong_deadlines(timeline, hold, lease)),
        *(violation for hold in timeline.holds for violation in _wrong_outcomes(timeline, hold)),
        *(
            f"no entry for {gap:.3f} s, until {end}"
            for gap, end, stopped in gaps
            if gap > GAP + grants * stopped * lease
        ),
    ]
    fence = max((hold.entry.fence for hold in timeline.holds), default=0)
    counts = _counts(timeline, pairs, lease)
    counts["longest gap in ms"] = int(1000 * max((gap for gap, _, _ in gaps), default=0.0))
    return Result(violations, counts, fence)


def _counts(timeline: Timeline, pairs: list[Pair], lease: float) -> dict[str, int]:
    signals = [line for _, line, _ in timeline.events if isinstance(line, Signal) and line.what != RESUME]
    outcomes = Counter(hold.outcome.result if hold.outcome else "none" for hold in timeline.holds)
    return {
        "entries": len(timeline.holds),
        "overtaken": len(pairs),
        "written late": sum(stale.number > fresh.number for stale, fresh in pairs),
        "lost": outcomes[LOST],
        "unreachable": outcomes[UNREACHABLE],
        "refused": sum(isinstance(line, Refused) for _, line, _ in timeline.events),
        "outlived a lease": sum(bool(hold.exit and hold.end > hold.entry.got + lease) for hold in timeline.holds),
        "signals": len(signals),
        "hits": sum(signal.hit for signal in signals),
    }


def _failures(timeline: Timeline) -> Iterator[str]:
    for _, line, _ in timeline.events:
        if isinstance(line, Failed):
            yield f"caller {line.worker}.{line.caller} failed:\n{line.error}"
        if isinstance(line, Refused) and not timeline.worker(line.worker).stopped(line.asked, line.at):
            yield f"caller {line.worker}.{line.caller} was refused although its process ran on: {line.error}"


def _overlaps(timeline: Timeline) -> Iterator[str]:
    """Yield holds with overlapping times in which each had to be alone, by the clock."""
    before: Hold | None = None
    for hold in sorted(timeline.holds, key=lambda hold: hold.entry.got):
        if hold.end <= hold.entry.got:
            continue  # its lease was over when its `acquire` returned, and it could know
        if before and hold.entry.got < before.end:
            yield f"{hold} entered {before.end - hold.entry.got:.6f} s before the end of {before}"
        if before is None or hold.end > before.end:
            before = hold


def _overtaken(timeline: Timeline) -> Iterator[Pair]:
    """Yield holds that hadn't ended, or weren't in the history yet, when one with a higher fence entered."""
    inside: list[Hold] = []
    highest = 0
    for _, line, hold in timeline.events:
        if hold is None:
            continue
        if isinstance(line, Exit) and hold in inside:
            inside.remove(hold)
        if not isinstance(line, Entry):
            continue
        if line.fence > highest:
            yield from ((stale, hold) for stale in inside)
            inside = [hold]
            highest = line.fence
        else:
            older = timeline.holds[: hold.number]
            yield hold, min((other for other in older if other.entry.fence >= line.fence), key=_got)


def _got(hold: Hold) -> float:
    return hold.entry.got


def _overtaking_violations(timeline: Timeline, stale: Hold, fresh: Hold) -> Iterator[str]:
    """Violations by a hold and the one that overtook it."""
    entered = fresh.entry.got
    if stale.entry.fence == fresh.entry.fence:
        yield f"{stale} has the fence of {fresh}"
    if stale.until > entered:
        yield f"{fresh} entered {stale.until - entered:.6f} s before the lease of {stale} was over"
    if stale.exit and not stale.exit.lost and not timeline.worker_of(stale).stopped(stale.exit.left, entered):
        yield f"{stale} was inside together with {fresh}, without notice"
    if stale.outcome and stale.outcome.result != LOST:
        yield f"the release of {stale} returned {stale.outcome.result!r} although {fresh} had overtaken it"


def _wrong_deadlines(timeline: Timeline, hold: Hold, lease: float) -> Iterator[str]:
    """Wrong beliefs of a holder about its lease, whatever others did."""
    entry, exit = hold.entry, hold.exit
    worker = timeline.worker_of(hold)
    if entry.until > entry.got + lease:
        yield f"{hold} believed in a lease of {entry.until - entry.got:.3f} s"
    if exit is None:
        return
    if exit.until > exit.seen + lease:
        yield f"{hold} believed in a lease of {exit.until - exit.seen:.3f} s in the end"
    if not exit.lost and exit.left >= hold.until:
        yield f"{hold} outlived its lease by {exit.left - hold.until:.3f} s without notice"
    if exit.lost and exit.seen < hold.until:
        yield f"{hold} was reported lost {hold.until - exit.seen:.3f} s before the end of its lease"
    if (exit.lost or not entry.until) and not worker.stopped(entry.asked, exit.seen):
        yield f"{hold} lost its lock although its process ran on"


def _wrong_outcomes(timeline: Timeline, hold: Hold) -> Iterator[str]:
    """Wrong results of a release."""
    outcome, worker = hold.outcome, timeline.worker_of(hold)
    if outcome is None:
        if not worker.killed:
            yield f"{hold} has no end although its process wasn't killed"
        return
    if outcome.result == LOST and outcome.at < hold.until:
        yield f"the release of {hold} was reported lost {hold.until - outcome.at:.3f} s before the end of its lease"
    if outcome.result != RELEASED and not worker.stopped(hold.entry.asked, outcome.at):
        yield f"the release of {hold} returned {outcome.result!r} although its process ran on"


def _gaps(timeline: Timeline, pairs: list[Pair]) -> Iterator[tuple[float, str, int]]:
    """The times without an entry, what ended each, and how many processes were stopped in it. A time begins again when the holder leaves, or gets a signal. A
    signal to another process is no excuse, nor is a line of a hold that was overtaken."""
    overtaken = {stale for stale, _ in pairs}
    late = {stale for stale, fresh in pairs if stale.number > fresh.number}
    since: float | None = None
    still: set[int] = set()  # processes that are stopped now
    stopped: set[int] = set()
    for time, line, hold in timeline.events:
        before = since
        if isinstance(line, Signal):
            (still.add if line.what == STOP else still.discard)(line.worker)
            stopped |= still
        if (isinstance(line, Entry) and hold not in late) or isinstance(line, Mark):
            if since is not None:
                yield timeline.running_time(since, time), str(hold) if hold else line.what, len(stopped)
            if line == Mark(END):
                return  # callers leave now, and the first entry of a process that is still starting ends no gap
            since = time
        elif since is None:
            continue
        elif isinstance(line, Signal):
            since = time if line.hit else since
        elif isinstance(line, Exit) and hold not in overtaken and not line.lost:
            since = time
        if since != before:
            stopped = set(still)

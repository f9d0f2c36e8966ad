"""Judges a journal: was anybody ever inside together with somebody else, or told a wrong thing, or forgotten?

A hold may end without its holder's doing in one way only: its lease runs out. That it was killed or stopped is no
excuse by itself, and frees nothing early. So of any two holds that overlap in the journal the older one

- must have been past the end of its lease, as it knew it itself, when the younger one's `acquire` returned;
- must not have been able to do otherwise: it was killed, or stopped meanwhile, or the whole machine stood still;
- must be told: by `grant.lost` before its exit is written, and by LockLost when it releases.

The same goes for an entry that is written late, after one with a higher fence: its process was stopped between.
A process that runs is never late: that the lease ends under a caller who wasn't stopped, by us or by a machine that had
no turn for it, is a failure too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from tests.chaos.fuzz.journal import (
    BEGIN,
    END,
    GO_ON,
    LOST,
    RELEASED,
    UNREACHABLE,
    Entry,
    Exit,
    Failed,
    Mark,
    Record,
    Refused,
    Signal,
    Stall,
)
from tests.chaos.fuzz.story import Hold, Story

GAP = 1.5
"""So many seconds after whoever had the lock left, or was killed or stopped, somebody must have entered: the lease, the
spread of the retries, and some air."""

PACE = 5000 / 60
"""Entries per second of a long run."""

BYPASS = 1000
"""So many entries of others while a worker runs and waits are too many. Eight processes that hand over sixteen times
each make a turn of 128."""


Pair: TypeAlias = tuple[Hold, Hold]
"""A hold, and one with a higher fence that overtook it."""


@dataclass
class Rules:
    lease: float = 1.0
    pace: float = PACE
    gap: float = GAP
    bypass: float = BYPASS


@dataclass
class Verdict:
    complaints: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    fence: int = 0
    """The highest one."""

    def __str__(self) -> str:
        some = [*self.complaints[:20], f"... {len(self.complaints)} in all"]
        return "\n".join([str(self.counts), *(some if len(self.complaints) > 20 else self.complaints)])


def judge(records: Iterable[Record], rules: Rules) -> Verdict:
    story = Story(records)
    pairs = list(_overtaken(story))
    gaps = list(_gaps(story, pairs))
    waits = list(_waits(story))
    complaints = [
        *story.nonsense,
        *_failures(story),
        *_overlaps(story),
        *(complaint for pair in pairs for complaint in _unlawful(story, *pair)),
        *(complaint for hold in story.holds for complaint in _misled(story, hold, rules.lease)),
        *(complaint for hold in story.holds for complaint in _mistold(story, hold)),
        *_short_leases(story, rules.lease),
        *(f"nobody entered for {gap:.3f} s, until {end}" for gap, end in gaps if gap > rules.gap),
        *_slow(story, rules.pace),
        *(
            f"worker {worker} waited for {others} entries of others"
            for others, worker in waits
            if others > rules.bypass
        ),
    ]
    fence = max((hold.entry.fence for hold in story.holds), default=0)
    counts = _counts(story, pairs, rules)
    counts["longest gap in ms"] = int(1000 * max(gaps, default=(0.0, ""))[0])
    counts["longest wait in entries"] = max(waits, default=(0, 0))[0]
    return Verdict(complaints, counts, fence)


def _counts(story: Story, pairs: list[Pair], rules: Rules) -> dict[str, int]:
    signals = [line for _, line, _ in story.events if isinstance(line, Signal) and line.what != GO_ON]
    outcomes = Counter(hold.told.outcome if hold.told else "none" for hold in story.holds)
    return {
        "entries": len(story.holds),
        "overtaken": len(pairs),
        "written late": sum(stale.number > fresh.number for stale, fresh in pairs),
        "lost": outcomes[LOST],
        "unreachable": outcomes[UNREACHABLE],
        "refused": sum(isinstance(line, Refused) for _, line, _ in story.events),
        "outlived a lease": sum(bool(hold.exit and hold.end > hold.entry.got + rules.lease) for hold in story.holds),
        "signals": len(signals),
        "hits": sum(signal.hit for signal in signals),
    }


def _failures(story: Story) -> Iterator[str]:
    for _, line, _ in story.events:
        if isinstance(line, Failed):
            yield f"caller {line.worker}.{line.caller} failed:\n{line.error}"
        if isinstance(line, Refused) and not story.worker(line.worker).stopped(line.asked, line.at):
            yield f"caller {line.worker}.{line.caller} was refused although its process ran on: {line.error}"


def _overlaps(story: Story) -> Iterator[str]:
    """By the clock: the times in which each had to be alone, pairwise apart."""
    before: Hold | None = None
    for hold in sorted(story.holds, key=lambda hold: hold.entry.got):
        if hold.end <= hold.entry.got:
            continue  # its lease was over when its `acquire` returned, and it could know
        if before and hold.entry.got < before.end:
            yield f"{hold} entered {before.end - hold.entry.got:.6f} s before the end of {before}"
        if before is None or hold.end > before.end:
            before = hold


def _overtaken(story: Story) -> Iterator[Pair]:
    """By the journal: each hold that wasn't over, or wasn't yet written down, when one with a higher fence entered."""
    inside: list[Hold] = []
    highest = 0
    for _, line, hold in story.events:
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
            older = story.holds[: hold.number]
            yield hold, min((other for other in older if other.entry.fence >= line.fence), key=_got)


def _got(hold: Hold) -> float:
    return hold.entry.got


def _unlawful(story: Story, stale: Hold, fresh: Hold) -> Iterator[str]:
    """What isn't right about a hold that another one overtook."""
    entered = fresh.entry.got
    if stale.entry.fence == fresh.entry.fence:
        yield f"{stale} has the fence of {fresh}"
    if stale.until > entered:
        yield f"{fresh} entered {stale.until - entered:.6f} s before the lease of {stale} was over"
    if stale.exit and not stale.exit.lost and not story.worker_of(stale).stopped(stale.exit.left, entered):
        yield f"{stale} was inside together with {fresh}, and wasn't told"
    if stale.told and stale.told.outcome != LOST:
        yield f"the release of {stale} was told {stale.told.outcome!r} although {fresh} had overtaken it"


def _misled(story: Story, hold: Hold, lease: float) -> Iterator[str]:
    """What isn't right about what a holder believed, whatever others did."""
    entry, exit = hold.entry, hold.exit
    worker = story.worker_of(hold)
    if entry.until > entry.got + lease:
        yield f"{hold} believed in a lease of {entry.until - entry.got:.3f} s"
    if exit is None:
        return
    if exit.until > exit.seen + lease:
        yield f"{hold} believed in a lease of {exit.until - exit.seen:.3f} s in the end"
    if not exit.lost and exit.left >= hold.until:
        yield f"{hold} outlived its lease by {exit.left - hold.until:.3f} s and wasn't told"
    if exit.lost and exit.seen < hold.until:
        yield f"{hold} was told of a loss {hold.until - exit.seen:.3f} s before the end of its lease"
    if (exit.lost or not entry.until) and not worker.stopped(entry.asked, exit.seen):
        yield f"{hold} lost its lock although its process ran on"


def _mistold(story: Story, hold: Hold) -> Iterator[str]:
    """What isn't right about what its release was told."""
    told, worker = hold.told, story.worker_of(hold)
    if told is None:
        if not worker.killed:
            yield f"{hold} has no end although nobody killed it"
        return
    if told.outcome == LOST and told.at < hold.until:
        yield f"the release of {hold} was told of a loss {hold.until - told.at:.3f} s before the end of its lease"
    if told.outcome != RELEASED and not worker.stopped(hold.entry.asked, told.at):
        yield f"the release of {hold} was told {told.outcome!r} although its process ran on"


def _short_leases(story: Story, lease: float) -> Iterator[str]:
    """Whoever tells its callers too early that their lease is over would be excused by all the rest."""
    leases = [hold.entry.until - hold.entry.got for hold in story.holds]
    if leases and median(leases) < 0.8 * lease:
        yield f"half of the callers believed in a lease of less than {median(leases):.3f} s"


def _gaps(story: Story, pairs: list[Pair]) -> Iterator[tuple[float, str]]:
    """How long nobody entered, and what ended it. The time begins anew when the one inside leaves, or is hit. A signal
    to anybody else is no excuse, nor is a line of somebody who was overtaken."""
    overtaken = {stale for stale, _ in pairs}
    late = {stale for stale, fresh in pairs if stale.number > fresh.number}
    since: float | None = None
    for time, line, hold in story.events:
        if (isinstance(line, Entry) and hold not in late) or isinstance(line, Mark):
            if since is not None:
                yield story.awake(since, time), str(hold) if hold else line.what
            since = None if line == Mark(END) else time
        elif since is None:
            continue
        elif isinstance(line, Signal):
            since = time if line.hit else since
        elif isinstance(line, Exit) and hold not in overtaken and not line.lost:
            since = time


def _waits(story: Story) -> Iterator[tuple[int, int]]:
    """How many entries of others each worker saw between two of its own. Who is stopped isn't waiting, nor is who has
    yet to begin."""
    waits: dict[int, int] = {}
    for _, line, _ in story.events:
        if isinstance(line, Entry):
            if line.worker in waits:
                yield waits[line.worker], line.worker
            waits = {worker: others + 1 for worker, others in waits.items()} | {line.worker: 0}
        elif isinstance(line, Signal):
            waits.pop(line.worker, None)
            if line.what == GO_ON:
                waits[line.worker] = 0
        elif isinstance(line, Stall) and line.worker in waits:
            waits[line.worker] = 0
        elif line == Mark(END):
            break
    yield from ((others, worker) for worker, others in waits.items())


def _slow(story: Story, pace: float) -> Iterator[str]:
    marks = {line.what: time for time, line, _ in story.events if isinstance(line, Mark)}
    if BEGIN not in marks or END not in marks:
        yield "the fuzz has no begin or no end"
        return
    begin, end = marks[BEGIN], marks[END]
    entries = sum(isinstance(line, Entry) and begin <= time <= end for time, line, _ in story.events)
    if entries < pace * story.awake(begin, end):
        yield f"only {entries} entries in {end - begin:.1f} s"

"""Evaluates the demo of a failover: its tables, and the failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from example_project.family_report import Event, Table


@dataclass(frozen=True)
class Kill:
    """A master that was killed."""

    at: float
    promoted: float  # when all sentinels named another one
    former: int  # the ports
    new: int


def first_acquire(acquired: Iterable[float], killed: float) -> float:
    """The time of the first acquire by the new master: the end of the longest pause that follows the kill. The last
    replies of the former master are processed shortly after it."""
    times = [killed, *sorted(at for at in acquired if at > killed)]
    return max(pairwise(times), key=lambda pair: pair[1] - pair[0], default=(killed, killed))[1]


def failovers(kills: Sequence[Kill], events: Sequence[Event], longest: float) -> Table:
    """longest: seconds until the first acquire, above which the demo fails."""
    rows, wrong = [], []
    ends = [kill.at for kill in kills[1:]] + [float("inf")]
    for number, (kill, end) in enumerate(zip(kills, ends, strict=True), 1):
        acquired = [event.at for event in events if event.what == "acquired" and kill.at < event.at < end]
        seconds = first_acquire(acquired, kill.at) - kill.at
        counting = {event.of for event in events if event.what == "counted" and kill.promoted < event.at < end}
        rows.append(
            (
                f"{number}. kill",
                f"{kill.former} to {kill.new}",
                f"{kill.promoted - kill.at:.2f} s",
                f"{seconds:.2f} s",
                str(len(counting)),
            )
        )
        if not 0 < seconds <= longest:
            wrong.append(f"After the {number}. kill the first acquire came after {seconds:.2f} s.")
    return Table(
        title="The master is killed",
        columns=("", "master, by port", "new one after", "first acquire after", "processes that count again"),
        rows=rows,
        text="The sentinels name another master when the former one was silent for a second. Callers ask them every 200 ms.",
        wrong=wrong,
    )


def counts(processes: int, kills: Sequence[Kill], events: Sequence[Event], value: int) -> Table:
    """value: the counter at the end."""
    found = Counter((event.what, event.of) for event in events)
    rows, wrong = [], []
    for number in range(1, processes + 1):
        times = sorted(event.at for event in events if event.what == "counted" and event.of == number)
        pause = max((end - begin for begin, end in pairwise(times)), default=0.0)
        seen = [str(found[what, number]) for what in ("counted", "refused", "lost", "failed")]
        rows.append((f"process {number}", *seen, f"{pause:.2f} s"))
        if not times or times[-1] < kills[-1].promoted:
            wrong.append(f"Process {number} didn't count after the last kill.")
    counted = sum(event.what == "counted" for event in events)
    rows.append(("all", str(counted), *(str(sum(int(row[column]) for row in rows)) for column in (2, 3, 4)), ""))
    if value != counted:
        wrong.append(f"The counter is {value} after {counted} increments.")
    return Table(
        title="What each process sees",
        columns=("", "increments", "refused by fence", "LockLost", "LockBackendError", "longest pause"),
        rows=rows,
        text=f"The counter is {value}: {counted - value} updates are lost. A read leaves its fence at the counter, and a write "
        "with an older one is refused. LockLost: the lock wasn't on the new master when it was released.",
        wrong=wrong,
    )

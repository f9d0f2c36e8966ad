"""The judgement of the demo of a failover: it must fail for what it is meant to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from example_project.failover_report import Kill, counts, failovers, first_acquire
from example_project.family_report import Event

KILLS = [Kill(10.0, 12.3, 7001, 7002), Kill(20.0, 22.2, 7002, 7003)]
TIMES = [9.9, 10.01, 12.4, 12.5, 19.9, 22.3, 22.4]
EVENTS = [Event(what, of, at) for of in (1, 2) for at in TIMES for what in ("acquired", "counted")]
COUNTED = 2 * len(TIMES)


def test_first_acquire_ends_the_longest_pause() -> None:
    """The last reply of the former master is read shortly after the kill."""
    assert first_acquire(TIMES, 10.0) == 19.9
    assert first_acquire([at for at in TIMES if at < 15], 10.0) == 12.4
    assert first_acquire([], 10.0) == 10.0


def test_demo_without_faults_is_as_promised() -> None:
    first, second = failovers(KILLS, EVENTS, 12.0), counts(2, KILLS, EVENTS, COUNTED)
    assert [*first.wrong, *second.wrong] == []
    assert first.rows[1] == ("2. kill", "7002 to 7003", "2.20 s", "2.30 s", "2")
    assert second.rows[-1][:2] == ("all", str(COUNTED))


@pytest.mark.parametrize(
    ("until", "value", "message"),
    [
        (99.0, COUNTED - 1, "The counter is 13 after 14 increments."),
        (20.0, 10, "After the 2. kill the first acquire came after 0.00 s."),
        (20.0, 10, "Process 1 didn't count after the last kill."),
    ],
)
def test_demo_with_a_fault_fails(until: float, value: int, message: str) -> None:
    events = [event for event in EVENTS if event.at < until]
    assert message in [*failovers(KILLS, events, 12.0).wrong, *counts(2, KILLS, events, value).wrong]


def test_late_acquire_fails() -> None:
    late = [replace(event, at=event.at + 10) if event.at > 22 else event for event in EVENTS]
    (message,) = failovers(KILLS, late, 12.0).wrong
    assert message == "After the 2. kill the first acquire came after 12.30 s."

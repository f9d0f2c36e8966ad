"""The judgement of the demo of jobs: it must fail for what it is meant to show."""

from __future__ import annotations

from dataclasses import replace

from example_project.jobs_report import (
    INTERVAL,
    TOO_LATE,
    Event,
    JobCounts,
    Kill,
    confirmations,
    explanation,
    failures,
    heading,
    line,
    overlaps,
    ticks,
)

PLAIN = [
    JobCounts("plain.take_stock", 12, 12, 12, 0, 12, 4, 8, 0),
    JobCounts("plain.confirm_order", 60, 60, 60, 0, 60, 40, 9, 0),
]
OURS = [
    JobCounts("shop.take_stock", 12, 6, 6, 1, 5, 0, 0, 0),
    JobCounts("shop.confirm_order", 60, 20, 21, 1, 20, 0, 0, 0),
]


def test_tally_that_shows_no_difference_fails():
    assert failures(PLAIN, OURS) == []
    for changes, message in (
        ({"twice": 1}, "shop.take_stock was done twice 1 times."),
        ({"at_once": 2}, "shop.take_stock ran 2 times while it ran already."),
        ({"lost": 1}, "shop.take_stock was lost 1 times."),
        ({"killed": 0}, "No run of shop.take_stock was killed."),
        ({"messages": 12}, "shop.take_stock had a message for each submission: no lock was at work."),
    ):
        assert failures(PLAIN, [replace(OURS[0], **changes), OURS[1]]) == [message]
    (message,) = failures([replace(PLAIN[0], twice=0), PLAIN[1]], OURS)
    assert message.startswith("plain.take_stock was never done twice")
    assert len(heading()) == len(line(OURS[0]))
    assert line(OURS[1]).split() == ["shop.confirm_order", "60", "20", "21", "1", "20", "0", "0", "0"]
    assert "12 messages for 6 ticks" in explanation(PLAIN, OURS, 0.0412)


def event(what, at, *, id="1", key=None, pid=1, task="t"):
    return Event(what, task, id, key, pid, at)


def test_confirmations_are_counted_by_order():
    events = [
        event("sent", 0, id="a"),
        event("began", 1, id="a", key=1, pid=7),
        event("began", 3, id="a", key=1, pid=8),
        event("ended", 4, id="a", key=1, pid=8),
        event("began", 5, id="b", key=2),
        event("ended", 6, id="b", key=2),
        event("began", 7, id="c", key=2),
        event("ended", 8, id="c", key=2),
        event("ended", 8, id="x", key=3, task="another"),
    ]
    tally = confirmations("t", events, [Kill(7, "t", "a", 2.0), Kill(9, "", "", 5.0)], [1, 2, 3], 3)
    assert tally == JobCounts("t", 9, messages=1, begun=4, killed=1, finished=3, twice=1, at_once=0, lost=1)


def test_killed_run_overlaps_only_before_its_kill():
    """Before that, another one of the same key overlaps it."""
    began = [event("began", 1, id="a", pid=7), event("began", 3, id="a", pid=8)]
    assert overlaps(began, [Kill(7, "t", "a", 2.0)]) == 0
    assert overlaps(began, [Kill(7, "t", "a", 3.5)]) == 1
    assert overlaps(began, []) == 1
    assert overlaps([event("began", 1, key=1), event("began", 2, id="b", key=2)], []) == 0
    assert overlaps([event("began", 1), event("ended", 2), event("began", 3, id="b")], []) == 0


def test_ticks_are_distinguished_by_their_distance():
    sent = [event("sent", INTERVAL * n, id=str(n)) for n in range(3)]
    runs = [event("began", INTERVAL * n + 0.1, id=str(n)) for n in range(3)]
    ends = [event("ended", INTERVAL * n + 1.1, id=str(n)) for n in range(3)]
    good = [*sent, event("kept", 1.0), *runs, *ends]
    until = 2 * INTERVAL + 1
    assert ticks("t", good, [], until) == JobCounts("t", 4, 3, 3, killed=0, finished=3, twice=0, at_once=0, lost=0)
    assert ticks("t", [*good, event("sent", INTERVAL + 0.3)], [], until).twice == 1
    assert ticks("t", good, [], until + TOO_LATE).lost == 1  # no run since
    assert ticks("t", [*sent, *runs[:1], event("began", TOO_LATE + 1, id="9")], [], TOO_LATE + 2.5).lost == 2
    assert ticks("t", [*good, event("began", TOO_LATE, id="9")], [], 2 * TOO_LATE).lost == 0
    assert ticks("t", [*good, event("sent", 3, id="8"), event("began", 2 * TOO_LATE, id="9")], [], 30).lost == 2

"""The line of processes before a lock: who can be told lines up, and is told of it what the store said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_redis_locks.core import owners
from django_redis_locks.core.effects import Standing, Turn
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.primitives.lock import read_verdict
from django_redis_locks.primitives.wishes import Ask, Busy, Foreign, Granted
from tests.unit.primitives.stepping import a_lock, acquire

BUSY = Busy(5.0, None, Standing(7, True))


def ask(wait: float = 3.0) -> Ask:
    return Ask(wait, owners.me(), None)


Story = list[tuple[str, Any]]

BEGIN: Story = [
    ("now", 100.0),
    ("wait until 103", Turn()),
    ("now", 100.0),
    ("lock/acquire A", Busy(5.0, None)),
]
"""A busy lock, and nobody hears the store."""


def test_attempt_without_an_inbox_has_no_address() -> None:
    """[H7] And isn't lined up: the first busy answer has the inbox opened, and the lock is asked for again at once."""
    hold = acquire(
        a_lock(),
        ask(),
        [
            *BEGIN,
            ("now", 100.1),
            ("listen for 2", True),
            ("wait until 103, pause 0, nowhere", Turn("inbox 0")),
            ("now", 100.2),
            ("lock/acquire A at inbox 0", Granted(7)),
            ("leave, pause 2, nowhere", None),
            ("now", 100.3),
        ],
    )
    assert isinstance(hold, Hold)


def test_waiter_that_cannot_subscribe_polls() -> None:
    """[H7] It is tried once for each wish, however long that waits."""
    acquire(
        a_lock(),
        ask(),
        [
            *BEGIN,
            ("now", 100.1),
            ("listen for 2", False),
            ("wait until 103, pause 2, nowhere", Turn()),
            ("now", 102.1),
            ("lock/acquire A", Busy(5.0, None)),
            ("now", 102.2),
            ("wait until 103, pause 2, nowhere", Turn()),
            ("now", 103.0),
            ("lock/acquire A", Granted(7)),
            ("leave, pause 2, nowhere", None),
            ("now", 103.0),
        ],
    )


def test_waiter_registers_when_the_inbox_is_confirmed() -> None:
    """[H7] The inbox may come back by itself, or somebody else's wish may have opened it."""
    acquire(
        a_lock(),
        ask(),
        [
            *BEGIN,
            ("now", 100.1),
            ("listen for 2", False),
            ("wait until 103, pause 2, nowhere", Turn("inbox 0")),
            ("now", 100.2),
            ("lock/acquire A at inbox 0", BUSY),
            ("now", 100.2),
            ("wait until 103, pause 2, since 7 with others", Turn()),
            ("now", 101.0),
            ("lock/acquire A", Granted(7)),
            ("leave, pause 2, nowhere", None),
            ("now", 101.0),
        ],
    )


def test_subscribe_takes_no_longer_than_the_wait() -> None:
    """[L30] Two seconds at most, and never beyond the caller's deadline."""
    story: Story = [*BEGIN, ("now", 102.5), ("listen for 0.5", False), ("wait until 103, pause 2, nowhere", None)]
    assert acquire(a_lock(), ask(), [*story, ("leave", None), ("now", 103.0)]) == Busy(5.0, None)


@pytest.mark.parametrize("verdict", [Granted(7), Busy(5.0, None)], ids=["granted", "busy"])
def test_acquire_without_wait_neither_subscribes_nor_registers(verdict: Granted | Busy) -> None:
    """[H7] [H12] One attempt without an address."""
    acquire(a_lock(), ask(0), [("now", 100.0), ("lock/acquire A", verdict), ("now", 100.0)])


def test_waiter_at_its_deadline_does_not_subscribe() -> None:
    """[L30] The answer to the last question is the outcome."""
    acquire(a_lock(), ask(), [*BEGIN, ("now", 103.0), ("leave, nowhere", None), ("now", 103.0)])


def test_registration_is_kept_between_attempts() -> None:
    """[H4] Who lost a race comes back with its first arrival, and says whether others of its process wait."""
    acquire(
        a_lock(),
        ask(),
        [
            ("now", 100.0),
            ("wait until 103", Turn("inbox 0", 3, True)),
            ("now", 100.0),
            ("lock/acquire A at inbox 0 since 3, more", BUSY),
            ("now", 100.0),
            ("wait until 103, pause 2, since 7 with others", Turn("inbox 0", 7)),
            ("now", 101.0),
            ("lock/acquire A at inbox 0 since 7", Granted(7, standing=Standing(9, True))),
            ("leave, pause 2, since 9 with others", None),
            ("now", 101.0),
        ],
    )


INTERRUPTED: Story = [
    *BEGIN,
    ("now", 100.1),
    ("listen for 2", True),
    ("wait until 103, pause 0, nowhere", Turn("inbox 0")),
    ("now", 100.2),
    ("lock/acquire A at inbox 0", BUSY),
    ("now", 100.2),
    ("wait until 103, pause 2, since 7 with others", Turn("inbox 0", 7)),
]


@pytest.mark.parametrize(
    ("last", "cleared"),
    [
        (5, ["leave, pause 0"]),
        (6, ["leave, pause 0"]),
        (8, ["leave, pause 0", "sweep A for 10"]),
        (10, ["leave, pause 0"]),
    ],
)
def test_interrupted_attempt_reports_no_registration(last: int, cleared: list[str]) -> None:
    """[H8] [H9] Then the queue takes its question for unanswered, which costs a message and loses nothing; and a wake-up
    that came meanwhile isn't belied."""
    with pytest.raises(KeyboardInterrupt):
        acquire(
            a_lock(),
            ask(),
            [*INTERRUPTED[:last], (INTERRUPTED[last][0], KeyboardInterrupt()), *((line, None) for line in cleared)],
        )


def test_waiter_stays_in_the_stores_queue_for_two_poll_intervals() -> None:
    """[H9] A process that isn't heard of for longer is dead."""
    assert DEFAULT.waiter_ttl == 4000
    assert replace(DEFAULT, max_poll_interval=5.0).waiter_ttl == 10_000


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ([1, b"7", 1, 0, 0], Granted(7, True, Standing(0, False))),
        ([1, b"7", 0, b"1700000000000001", 1], Granted(7, False, Standing(1_700_000_000_000_001, True))),
        ([-1, b"a string"], Foreign("a string")),
    ],
    ids=["free", "mine already", "foreign"],
)
def test_reply_of_acquire_is_parsed(reply: list[Any], verdict: Granted | Foreign) -> None:
    """As Redis answers it: large numbers as bytes."""
    assert read_verdict(reply) == verdict


def test_busy_reply_of_acquire_is_parsed() -> None:
    """[H4] With the holder, and the arrival to come back with."""
    verdict = read_verdict([0, 1500, b"7", b"1700000000000", b'["host",1,null,null]', b"1700000000000001", 1])
    assert isinstance(verdict, Busy)
    assert (verdict.lease_left, verdict.standing) == (1.5, Standing(1_700_000_000_000_001, True))
    assert verdict.holder is not None
    assert (verdict.holder.fence, verdict.holder.since, verdict.holder.host) == (7, 1_700_000_000.0, "host")

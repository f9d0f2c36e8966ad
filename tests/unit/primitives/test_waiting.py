"""The line of processes before a lock: a process with an inbox lines up, and hears of it what the store said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_redis_locks.core.effects import Standing, Turn
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.primitives.lock import read_verdict
from django_redis_locks.primitives.wishes import Busy, Foreign, Granted
from tests.unit.primitives.stepping import a_lock, acquire, interrupted, story

OWN: dict[str, Any] = {"nowhere": Busy(5.0, None), "busy": Busy(5.0, None, Standing(7, True))}

BEGIN = "100: wait 103 = deaf; acquire A = nowhere; "
"""A busy lock, in a process that doesn't hear the store."""
END = "; leave, pause 2, nowhere"

WAITS = {
    # [H7] Without an inbox a question has no address: the first busy answer has the inbox opened, and asks again at once
    "inbox opened": "100.1: listen for 2 = yes; wait 103, pause 0, nowhere = turn; 100.2: acquire A at inbox 0 = granted",
    # [H7] It is tried once for each wish, however long that waits
    "polls": "100.1: listen for 2 = no; wait 103, pause 2, nowhere = deaf; 102.1: acquire A = nowhere"
    "; 102.2: wait 103, pause 2, nowhere = deaf; 103: acquire A = granted",
    # [H7] The inbox may come back by itself, or another wish may have opened it
    "inbox confirmed": "100.1: listen for 2 = no; wait 103, pause 2, nowhere = turn; 100.2: acquire A at inbox 0 = busy"
    "; wait 103, pause 2, since 7 with others = deaf; 101: acquire A = granted",
}


@pytest.mark.parametrize("steps", WAITS.values(), ids=WAITS)
def test_waiter_registers_from_when_it_has_an_inbox(steps: str) -> None:
    """[H7] And polls without one."""
    assert isinstance(acquire(a_lock(), 3, BEGIN + steps + END, **OWN), Hold)


def test_subscribe_takes_no_longer_than_the_wait() -> None:
    """[L30] Two seconds at most, and never beyond the caller's deadline, at which the last answer is the outcome."""
    for steps in ("102.5: listen for 0.5 = no; wait 103, pause 2, nowhere; leave; 103:", "103: leave, nowhere"):
        assert acquire(a_lock(), 3, BEGIN + steps, **OWN) == Busy(5.0, None)


def test_registration_is_kept_between_attempts() -> None:
    """[H4] After a lost race it comes back with its first arrival, and says whether others of its process wait."""
    steps = "100: wait 103 = first; acquire A at inbox 0 since 3, more = busy; wait 103, pause 2, since 7 with others = again"
    steps += "; 101: acquire A at inbox 0 since 7 = mine; leave, pause 2, since 9 with others"
    mine = Granted(7, standing=Standing(9, True))
    assert isinstance(acquire(a_lock(), 3, steps, first=Turn("inbox 0", 3, True), mine=mine, **OWN), Hold)


def test_interrupted_attempt_reports_no_registration() -> None:
    """[H8] [H9] Then the queue takes its question for unanswered, which costs a message and loses nothing; and a wake-up
    that came meanwhile isn't belied."""
    steps = BEGIN + "100.1: listen for 2 = yes; wait 103, pause 0, nowhere = turn; 100.2: acquire A at inbox 0 = busy"
    steps += "; wait 103, pause 2, since 7 with others = again"
    for step in (2, 3, 4, 5):
        cleared = "leave, pause 0" + "; sweep A for 10" * (step == 4)
        with pytest.raises(KeyboardInterrupt):
            acquire(a_lock(), 3, interrupted(story(steps, **OWN), step, KeyboardInterrupt(), cleared))


def test_waiter_stays_in_the_stores_queue_for_two_poll_intervals() -> None:
    """[H9] A process that isn't heard of for longer is dead."""
    assert DEFAULT.waiter_ttl == 4000
    assert replace(DEFAULT, max_poll_interval=5.0).waiter_ttl == 10_000


def test_reply_of_acquire_is_parsed() -> None:
    """As Redis answers it: large numbers as bytes."""
    for reply, verdict in (
        ([1, b"7", 1, 0, 0], Granted(7, True, Standing(0, False))),
        ([1, b"7", 0, b"1700000000000001", 1], Granted(7, False, Standing(1_700_000_000_000_001, True))),
        ([-1, b"a string"], Foreign("a string")),
    ):
        assert read_verdict(reply) == verdict


def test_busy_reply_of_acquire_is_parsed() -> None:
    """[H4] With the holder, and the arrival to come back with."""
    verdict = read_verdict([0, 1500, b"7", b"1700000000000", b'["host",1,null,null]', b"1700000000000001", 1])
    assert isinstance(verdict, Busy)
    assert (verdict.lease_left, verdict.standing) == (1.5, Standing(1_700_000_000_000_001, True))
    assert verdict.holder is not None
    assert (verdict.holder.fence, verdict.holder.since, verdict.holder.host) == (7, 1_700_000_000.0, "host")

"""The program that acquires, stepped through each answer of the store and the queue."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from django_redis_locks import LockBackendError, LockKeyError
from django_redis_locks.core import owners
from django_redis_locks.core.effects import Standing, Turn
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.primitives.wishes import Ask, Busy, Foreign, Granted
from tests.unit.primitives.stepping import PLACE, WORLD, a_lock, acquire, at

BUSY = Busy(5.0, None, Standing(7))
TURN = Turn("inbox 0")
"""The head's turn, in a queue that the store can reach."""
AGAIN = Turn("inbox 0", 7)
"""The next one, after the store has registered it."""


JOINED: list[tuple[str, Any]] = [("now", 100.0), ("wait until 103", TURN), ("now", 100.0)]
"""The caller is the head of its queue, and may wait for three seconds."""
JOINED_FOR_60: list[tuple[str, Any]] = [("now", 100.0), ("wait until 160", TURN), ("now", 100.0)]


def an_ask(wait: float = 3.0) -> Ask:
    return Ask(wait, owners.me(), None)


def lost_answer(**about: Any) -> LockBackendError:
    return LockBackendError("no answer", unanswered=True, passing=True, **about)


def unreachable() -> LockBackendError:
    return LockBackendError("can't connect", passing=True)


def test_acquire_of_a_free_lock_is_one_command() -> None:
    """One command; the deadline counts from its sending, less the drift [H14]; the next waiter is told to be patient."""
    ask = an_ask()
    hold = acquire(
        a_lock(),
        ask,
        [
            ("now", 100.0),
            ("wait until 103", TURN),
            ("now", 100.5),
            ("lock/acquire A at inbox 0", at(100.75, Granted(7))),
            ("leave, pause 2, nowhere", None),
            ("now", 101.0),
        ],
    )
    assert isinstance(hold, Hold)
    assert (hold.token, hold.fence, hold.lease, hold.state) == (ask.token, 7, 10_000, State.HELD)
    assert hold.deadline == 100.5 + validity(10_000)
    assert not hold.unanswered
    assert ask.waited == 1.0


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the lock in this process, or did lately."""
    monkeypatch.setattr(WORLD, "calm", lambda seat: seat.place == PLACE)


@pytest.mark.usefixtures("calm")
def test_uncontended_acquire_joins_no_queue() -> None:
    """As a rule there is nothing to wait for: one command, and no seat to give up."""
    ask = an_ask()
    hold = acquire(a_lock(), ask, [("now", 100.0), ("lock/acquire A", at(100.25, Granted(7))), ("now", 100.5)])
    assert (hold.token, hold.deadline) == (ask.token, 100.0 + validity(10_000))
    assert ask.seat is None
    assert ask.waited == 0.5


@pytest.mark.usefixtures("calm")
def test_uncontended_acquire_that_finds_it_busy_joins_and_asks_again() -> None:
    """[H8] At once, if it is the head: nobody could wake it before it joined. The answer said nothing of a place in line."""
    hold = acquire(
        a_lock(),
        an_ask(),
        [
            ("now", 100.0),
            ("lock/acquire A", BUSY),
            ("wait until 103", TURN),
            ("lock/acquire A at inbox 0", BUSY),
            ("wait until 103, pause 2, since 7", AGAIN),
            ("now", 102.0),
            ("lock/acquire A at inbox 0 since 7", Granted(7)),
            ("leave, pause 2, nowhere", None),
        ],
    )
    assert isinstance(hold, Hold)


@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize(
    ("last", "cleared"),
    [
        (1, ["leave, pause 0", "sweep A for 10"]),
        (3, ["leave, pause 0", "sweep A for 10"]),
        (4, ["leave, pause 0", "sweep A for 10"]),
        (5, ["leave, pause 0"]),
    ],
)
def test_uncontended_acquire_interrupted_at_each_step_cleans_up(last: int, cleared: list[str]) -> None:
    """[L16] [X2] There is a seat to give up as soon as it may have been taken."""
    story: list[tuple[str, Any]] = [
        ("now", 100.0),
        ("lock/acquire A", lost_answer()),
        ("pause 0.05", None),
        ("lock/acquire A", BUSY),
        ("sweep A for 10", None),
        ("wait until 103", TURN),
    ]
    with pytest.raises(KeyboardInterrupt):
        acquire(
            a_lock(),
            an_ask(),
            [*story[:last], (story[last][0], KeyboardInterrupt()), *((line, None) for line in cleared)],
        )


@pytest.mark.parametrize("verdict", [Granted(7), BUSY], ids=["granted", "busy"])
def test_acquire_without_wait_asks_once_and_joins_no_queue(verdict: Granted | Busy) -> None:
    """[L30] [H12] Exactly one attempt."""
    story: list[tuple[str, Any]] = [("now", 100.0), ("lock/acquire A", verdict), ("now", 100.1)]
    outcome = acquire(a_lock(), an_ask(0), story)
    assert outcome is BUSY if verdict is BUSY else isinstance(outcome, Hold)


def test_acquire_of_a_busy_lock_asks_again_with_its_token() -> None:
    """Busy: sleep until woken, two seconds are over [F26], or the lease ends, and ask again with the same token."""
    ask = an_ask(wait=60)
    first = ask.token
    hold = acquire(
        a_lock(),
        ask,
        [
            *JOINED_FOR_60,
            ("lock/acquire A at inbox 0", BUSY),
            ("now", 100.1),
            ("wait until 160, pause 2, since 7", AGAIN),
            ("now", 102.1),
            ("lock/acquire A at inbox 0 since 7", Busy(0.5, None, Standing(7))),
            ("now", 102.2),
            ("wait until 160, pause 0.5, since 7", AGAIN),
            ("now", 102.7),
            ("lock/acquire A at inbox 0 since 7", at(102.8, Granted(7))),
            ("leave, pause 2, nowhere", None),
            ("now", 102.8),
        ],
    )
    assert hold.token == first
    assert ask.waited == pytest.approx(2.8)


@pytest.mark.parametrize(("lease", "pause"), [(200, "0.2"), (2_000, "2"), (60_000, "2")])
def test_next_waiter_sleeps_no_longer_than_the_lease(lease: int, pause: str) -> None:
    """[L24] It is woken by the release; a holder that dies wakes nobody."""
    acquire(
        a_lock(lease=lease),
        an_ask(),
        [
            *JOINED,
            ("lock/acquire A at inbox 0", Granted(7)),
            (f"leave, pause {pause}, nowhere", None),
            ("now", 100.0),
        ],
    )


def test_acquire_asks_a_last_time_at_its_deadline() -> None:
    """[L30] The queue wakes the head at its deadline, and the answer to that question is the outcome."""
    last = Busy(1.0, None, Standing(7))
    ask = an_ask()
    outcome = acquire(
        a_lock(),
        ask,
        [
            *JOINED,
            ("lock/acquire A at inbox 0", BUSY),
            ("now", 100.1),
            ("wait until 103, pause 2, since 7", AGAIN),
            ("now", 103.0),
            ("lock/acquire A at inbox 0 since 7", last),
            ("now", 103.1),
            ("leave, since 7", None),
            ("now", 103.1),
        ],
    )
    assert outcome is last
    assert ask.waited == pytest.approx(3.1)


def test_acquire_that_never_is_head_ends_without_a_command() -> None:
    """[H22] It ends without a question, and without a reproach that it makes up."""
    outcome = acquire(
        a_lock(),
        an_ask(),
        [("now", 100.0), ("wait until 103", None), ("leave", None), ("now", 103.0)],
    )
    assert outcome == Busy(0.0, None)


def test_acquire_after_a_lost_answer_asks_with_the_same_token() -> None:
    """[H2] [L12] "Already mine" is then what success looks like; the deadline counts from the answered attempt."""
    ask = an_ask()
    first = ask.token
    hold = acquire(
        a_lock(),
        ask,
        [
            *JOINED,
            ("lock/acquire A at inbox 0", lost_answer()),
            ("now", 102.0),
            ("pause 0.05", None),
            ("now", 102.05),
            ("lock/acquire A at inbox 0", at(102.1, Granted(7))),
            ("leave, pause 2, nowhere", None),
            ("now", 102.1),
        ],
    )
    assert hold.token == first
    assert hold.deadline == 102.05 + validity(10_000)
    assert hold.unanswered, "so that it is swept after its release"


def test_acquire_that_is_busy_after_a_lost_answer_takes_a_new_token() -> None:
    """[H2] A late copy may still come: the token is swept, so what is granted later must have another one."""
    ask = an_ask()
    hold = acquire(
        a_lock(),
        ask,
        [
            *JOINED,
            ("lock/acquire A at inbox 0", lost_answer()),
            ("now", 100.1),
            ("pause 0.05", None),
            ("now", 100.15),
            ("lock/acquire A at inbox 0", BUSY),
            ("sweep A for 10", None),
            ("now", 100.2),
            ("wait until 103, pause 2, since 7", AGAIN),
            ("now", 101.0),
            ("lock/acquire B at inbox 0 since 7", Granted(7)),
            ("leave, pause 2, nowhere", None),
            ("now", 101.0),
        ],
    )
    assert hold.token == ask.token
    assert not hold.unanswered


def test_acquire_that_ends_with_a_lost_answer_leaves_cleanup() -> None:
    """[L16] [H2] It may have been granted: nobody will have it."""
    failure = lost_answer()
    with pytest.raises(LockBackendError) as caught:
        acquire(
            a_lock(),
            an_ask(0),
            [("now", 100.0), ("lock/acquire A", failure), ("now", 102.0), ("sweep A for 10", None)],
        )
    assert caught.value is failure
    assert caught.value.unanswered
    assert (failure.key, failure.name, failure.alias) == ("order:42", "order", "default")


def test_acquire_that_ends_unreachable_after_a_lost_answer_leaves_cleanup() -> None:
    """[H2] The last failure was harmless, an earlier one was not."""
    with pytest.raises(LockBackendError) as caught:
        acquire(
            a_lock(),
            an_ask(),
            [
                *JOINED,
                ("lock/acquire A at inbox 0", lost_answer()),
                ("now", 102.0),
                ("pause 0.05", None),
                ("now", 102.9),
                ("lock/acquire A at inbox 0", unreachable()),
                ("now", 103.0),
                ("leave, pause 0", None),
                ("sweep A for 10", None),
            ],
        )
    assert caught.value.unanswered


def test_acquire_that_never_reaches_the_store_leaves_no_cleanup() -> None:
    """Pauses double while it can't be reached, and never go beyond the caller's deadline; there is nothing to sweep."""
    story: list[tuple[str, Any]] = [("now", 100.0), ("wait until 103", TURN)]
    for sent, pause in ((100.0, 0.05), (100.1, 0.1), (100.3, 0.2), (100.6, 0.4), (101.1, 0.8), (102.0, 1)):
        story += [
            ("now", sent),
            ("lock/acquire A at inbox 0", unreachable()),
            ("now", sent),
            (f"pause {pause:g}", None),
        ]
    story += [("now", 103.0), ("lock/acquire A at inbox 0", unreachable()), ("now", 103.0), ("leave, pause 0", None)]
    with pytest.raises(LockBackendError) as caught:
        acquire(a_lock(), an_ask(), story)
    assert not caught.value.unanswered


def test_acquire_without_deadline_raises_after_thirty_seconds_of_outage() -> None:
    """After thirty seconds of trouble it is an error, also for a wait of -1."""
    story: list[tuple[str, Any]] = [("now", 100.0), ("wait until inf", TURN)]
    story += [("now", 100.0), ("lock/acquire A at inbox 0", unreachable()), ("now", 129.98), ("pause 0.02", None)]
    story += [("now", 130.0), ("lock/acquire A at inbox 0", unreachable()), ("now", 130.0), ("leave, pause 0", None)]
    with pytest.raises(LockBackendError):
        acquire(a_lock(), an_ask(inf), story)


def test_acquire_refused_by_the_server_is_not_repeated() -> None:
    """A wrong password doesn't get better; nothing was carried out, so nothing is swept."""
    with pytest.raises(LockBackendError):
        acquire(
            a_lock(),
            an_ask(),
            [
                *JOINED,
                ("lock/acquire A at inbox 0", LockBackendError("WRONGPASS")),
                ("leave, pause 0", None),
            ],
        )


def test_acquire_on_a_stale_connection_is_repeated_at_once() -> None:
    """[H24] It is tried again at once, although there is no time left, and the copy that went is remembered."""
    hold = acquire(
        a_lock(),
        an_ask(0),
        [
            ("now", 100.0),
            ("lock/acquire A", lost_answer(stale=True)),
            ("now", 100.0),
            ("lock/acquire A", Granted(7)),
            ("now", 100.0),
        ],
    )
    assert hold.unanswered


def test_acquire_granted_after_its_lease_leaves_cleanup_and_asks_again() -> None:
    """[H14] The answer took longer than the lease: that token is spent, and the next attempt has another one."""
    ask = an_ask(wait=60)
    hold = acquire(
        a_lock(),
        ask,
        [
            *JOINED_FOR_60,
            ("lock/acquire A at inbox 0", at(109.9, Granted(7))),
            ("sweep A for 10", None),
            ("now", 109.9),
            ("wait until 160, pause 0, nowhere", TURN),
            ("now", 110.0),
            ("lock/acquire B at inbox 0", at(110.1, Granted(8))),
            ("leave, pause 2, nowhere", None),
            ("now", 110.1),
        ],
    )
    assert (hold.token, hold.fence) == (ask.token, 8)
    assert ask.hold is hold


@pytest.mark.parametrize("terms", [{"renew_for": 60.0}, {"on_lost": print}, {"on_lost": "cancel"}], ids=str)
def test_hold_with_renewal_or_on_lost_is_watched(terms: dict[str, Any]) -> None:
    """[L8] [H23] From before it is given to the caller; a fixed lease that nobody asked about needs nothing."""
    acquire(
        a_lock(**terms),
        an_ask(0),
        [("now", 100.0), ("lock/acquire A", Granted(7)), ("watch A", None), ("now", 100.0)],
    )


def test_acquire_of_a_foreign_key_raises_LockKeyError() -> None:
    """[F6] It isn't waited for, and named with what to do."""
    with pytest.raises(LockKeyError, match=r"'order'.*a string.*KEY_PREFIX") as caught:
        acquire(
            a_lock(),
            an_ask(),
            [
                *JOINED,
                ("lock/acquire A at inbox 0", Foreign("a string")),
                ("leave, pause 0", None),
            ],
        )
    assert caught.value.key == "order:42"


STEPS: dict[int, list[str]] = {
    1: ["leave, pause 0"],
    3: ["leave, pause 0", "sweep A for 10"],
    5: ["leave, pause 0", "sweep A for 10"],
    7: ["leave, pause 0", "sweep A for 10"],
    8: ["leave, pause 0", "sweep A for 10"],
    10: ["leave, pause 0"],
    12: ["leave, pause 0", "sweep B for 10"],
    13: ["leave, pause 0", "unwatch B", "sweep B for 10"],
    14: ["leave, pause 0", "unwatch B", "sweep B for 10"],
}


@pytest.mark.parametrize("last", STEPS)
def test_acquire_interrupted_at_each_step_cleans_up(last: int) -> None:
    """[L16] [X2] Interrupted at any effect, it leaves the queue, has its token swept, and the error passes."""
    story: list[tuple[str, Any]] = [
        *JOINED,
        ("lock/acquire A at inbox 0", lost_answer()),
        ("now", 100.1),
        ("pause 0.05", None),
        ("now", 100.15),
        ("lock/acquire A at inbox 0", BUSY),
        ("sweep A for 10", None),
        ("now", 100.2),
        ("wait until 103, pause 2, since 7", AGAIN),
        ("now", 101.0),
        ("lock/acquire B at inbox 0 since 7", Granted(7)),
        ("watch B", None),
        ("leave, pause 2, nowhere", None),
    ]
    for interruption in (KeyboardInterrupt(), asyncio.CancelledError(), SystemExit()):
        ask = an_ask()
        cleared = [(line, None) for line in STEPS[last]]
        with pytest.raises(type(interruption)) as caught:
            acquire(a_lock(renew_for=60.0), ask, [*story[:last], (story[last][0], interruption), *cleared])
        assert caught.value is interruption
        assert ask.hold is None or ask.hold.state is State.GONE

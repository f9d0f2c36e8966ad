"""A signal handler may raise between any two statements of a queue: the waiter leaves once more, and nothing is left.
tests/chaos/test_interrupts.py interrupts whole calls at each line of the package."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Self

import pytest

from django_redis_locks.core.effects import HandOver, LeaveQueue, Wait
from django_redis_locks.core.hold import State
from django_redis_locks.core.queue_entry import GrantTerms
from django_redis_locks.core.queue_values import QueuePosition, Waiter
from django_redis_locks.engine import local_queues, wait_queue
from tests.unit.engine.queue_fixtures import LOCK_ID, NEVER, StandaloneQueues, address_of, handed_over_lock

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="newer Pythons trace more lines at which no signal is ever handled"
)


QUEUE_FILES = (local_queues.__file__, wait_queue.__file__)


class Interrupted(BaseException):
    """The exception of the signal handler."""


class Interruption:
    """Raises before the n-th executed line of the queues, except where a ``with`` releases a mutex (its second
    visit): no signal is handled there."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._entered: set[tuple[FrameType, int]] = set()
        self.raised = False

    def __enter__(self) -> Self:
        sys.settrace(self._frame)
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> bool:
        sys.settrace(None)
        return kind is Interrupted

    def _frame(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename in QUEUE_FILES else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            here = frame, frame.f_lineno
            again = here in self._entered
            self._entered.add(here)
            if not (again and linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")):
                if self._left == 0:
                    self.raised = True
                    raise Interrupted
                self._left -= 1
        return self._line


def interruptions() -> Iterator[Interruption]:
    """One for each line, until all lines were interrupted."""
    for number in itertools.count():
        interruption = Interruption(number)
        yield interruption
        if not interruption.raised:
            assert number > 8, "too few lines were executed"
            return


def free(queues: StandaloneQueues) -> None:
    """The mutex is free: another thread gets it."""
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(queues._mutex.acquire, timeout=20).result()
        threads.submit(queues._mutex.release).result()


def give_up(queues: StandaloneQueues, waiter: Waiter) -> None:
    """Leave again, as an interrupted caller does."""
    queues.leave(LeaveQueue(waiter, 0.0), queues.engine)
    free(queues)


def ended(queues: StandaloneQueues) -> None:
    assert queues._queues == {}


@pytest.mark.parametrize(
    "position", [None, QueuePosition(7), QueuePosition()], ids=["no reply", "queued", "not queued"]
)
@pytest.mark.parametrize("asked", [True, False])
def test_interrupted_leave_of_the_last_waiter_loses_nothing(position: QueuePosition | None, asked: bool) -> None:
    """[H3] [H9] Its registration and a handed-over lock that it didn't adopt are reported for cleanup, at least
    once."""
    for interruption in interruptions():
        queues = StandaloneQueues()
        waiter = queues.join_and_attempt()
        where = address_of(waiter)
        handed = handed_over_lock()
        queues.hand_over(HandOver(handed, None))
        if asked:
            queues.attempt_now(waiter)
        with interruption:
            queues.leave(LeaveQueue(waiter, None, position), queues.engine)
        if waiter not in waiter.queue.waiters:
            assert not queues.hand_over(HandOver(handed_over_lock(), None)), "the queue is empty"
        give_up(queues, waiter)
        ended(queues)
        taken = asked and position is not None
        if not taken:
            assert any(left[2] is handed for left in queues.leftovers)
        if not (taken and position == QueuePosition()):
            assert any(left[1] == where for left in queues.leftovers) or (position == QueuePosition() and not asked)
        assert {left[0] for left in queues.leftovers} <= {LOCK_ID}


@pytest.mark.parametrize("position", [None, QueuePosition(7)], ids=["no reply", "queued"])
def test_interrupted_leave_of_the_head_gives_the_next_its_turn(position: QueuePosition | None) -> None:
    """[H3] [H8] The next waiter attempts at once, since a wake-up may have been used; it gets a lock that wasn't
    adopted, and nothing is reported for cleanup while it waits."""
    for interruption in interruptions():
        queues = StandaloneQueues()
        waiter, second = queues.join_and_attempt(), queues.join()
        handed = handed_over_lock()
        queues.hand_over(HandOver(handed, None))
        with interruption:
            queues.leave(LeaveQueue(waiter, 60, position), queues.engine)
        give_up(queues, waiter)
        assert queues.leftovers == []
        attempt = queues.attempt_now(second)
        assert attempt.handed is handed
        assert not handed.adoption_unanswered, "no request was sent for it"
        queues.leave_queue(second)
        ended(queues)


def test_interrupted_takeover_has_one_owner() -> None:
    """[H3] [H21] Either the queue keeps it for the next waiter, or the interrupted caller cleans it up: exactly one."""
    for interruption in interruptions():
        queues = StandaloneQueues()
        first, second = queues.join(), queues.join()
        handed = queues.hand_over_lock(reserved_fences=3)
        with interruption:
            queues.begin_wait(Wait(first, NEVER), queues.engine)
            queues.leave(LeaveQueue(first, 0.0, QueuePosition()), queues.engine)
        give_up(queues, first)
        mine = handed.adopter is first
        attempt = queues.attempt_now(second)
        assert (handed in (attempt.handed, attempt.adopted)) is not mine
        queues.leave_queue(second)
        ended(queues)


def test_interrupted_handover_is_not_adopted_without_a_request() -> None:
    """[H3] [H21] The interrupted release may continue and free the lock, so the next waiter asks the store first."""
    for interruption in interruptions():
        queues = StandaloneQueues()
        waiter = queues.join()
        handed = handed_over_lock(reserved_fences=3)
        handed.hold.state = State.RELEASING
        with interruption:
            queues.hand_over(HandOver(handed, None))
        free(queues)
        attempt = queues.attempt_now(waiter)
        assert (attempt.adopted is handed) is (handed.hold.state is State.GONE)
        queues.leave_queue(waiter)
        ended(queues)


def test_interrupted_acquirer_gives_its_token_up() -> None:
    """[H2] [H3] Its cleanup deletes the token in the store, so the next waiter asks with another one."""
    for interruption in interruptions():
        queues = StandaloneQueues()
        first, second = queues.join(), queues.join()
        first.terms = second.terms = GrantTerms(3000, "[]", ())
        token = queues.attempt_now(first).token
        with interruption:
            queues.leave(LeaveQueue(first, None, QueuePosition()), queues.engine)
        give_up(queues, first)
        assert token
        assert queues.attempt_now(second).token != token
        queues.leave_queue(second)
        ended(queues)

"""A signal handler may raise between any two statements of a queue: whoever made a seat gives it up once more, and nothing
is left. Whole calls, at each line of the package: tests/chaos/test_interrupts.py."""

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
from django_redis_locks.core.queue_values import QueuePosition, Waiter
from django_redis_locks.engine import local_queue as queues
from tests.unit.engine.queue_fixtures import NEVER, PLACE, Line, address, handed_over_lock

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="newer Pythons trace more lines at which no signal is ever handled"
)


class Struck(BaseException):
    """What the handler raises."""


class Strike:
    """Raises before the n-th line of queues.py that is run under it, but not where a mutex is let go, at the second
    coming of a ``with``: no signal is handled there."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._entered: set[tuple[FrameType, int]] = set()
        self.struck = False

    def __enter__(self) -> Self:
        sys.settrace(self._frame)
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> bool:
        sys.settrace(None)
        return kind is Struck

    def _frame(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename == queues.__file__ else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            here = frame, frame.f_lineno
            again = here in self._entered
            self._entered.add(here)
            if not (again and linecache.getline(queues.__file__, frame.f_lineno).lstrip().startswith("with ")):
                if self._left == 0:
                    self.struck = True
                    raise Struck
                self._left -= 1
        return self._line


def strikes() -> Iterator[Strike]:
    """One for each line, until there is none left to strike at."""
    for number in itertools.count():
        strike = Strike(number)
        yield strike
        if not strike.struck:
            assert number > 8, "it hardly ran"
            return


def free(line: Line) -> None:
    """Nobody has the mutex: another thread gets it."""
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(line._mutex.acquire, timeout=20).result()
        threads.submit(line._mutex.release).result()


def give_up(line: Line, waiter: Waiter) -> None:
    """As whoever is interrupted does."""
    line.leave(LeaveQueue(waiter, 0.0), line.outside)
    free(line)


def ended(line: Line) -> None:
    assert line._queues == {}


@pytest.mark.parametrize("position", [None, QueuePosition(7), QueuePosition()], ids=["no answer", "in line", "nowhere"])
@pytest.mark.parametrize("asked", [True, False])
def test_interrupted_leave_of_the_last_waiter_loses_nothing(position: QueuePosition | None, asked: bool) -> None:
    """[H3] [H9] What it leaves behind is told, at least once: its place in line, and what was handed to it and not
    taken. Told in doubt, never forgotten."""
    for strike in strikes():
        line = Line()
        waiter = line.asked()
        where = address(waiter)
        handed = handed_over_lock()
        line.hand_over(HandOver(handed, None))
        if asked:
            line.ask(waiter)
        with strike:
            line.leave(LeaveQueue(waiter, None, position), line.outside)
        if waiter not in waiter.queue.waiters:
            assert not line.hand_over(HandOver(handed_over_lock(), None)), "nobody sits there any more"
        give_up(line, waiter)
        ended(line)
        taken = asked and position is not None
        if not taken:
            assert any(left[2] is handed for left in line.left)
        if not (taken and position == QueuePosition()):
            assert any(left[1] == where for left in line.left) or (position == QueuePosition() and not asked)
        assert {left[0] for left in line.left} <= {PLACE}


@pytest.mark.parametrize("position", [None, QueuePosition(7)], ids=["no answer", "in line"])
def test_interrupted_leave_of_the_head_gives_the_next_its_turn(position: QueuePosition | None) -> None:
    """[H3] [H8] The next one asks at once, since a wake-up may have been spent; what wasn't taken is his, and nothing is
    left to the janitor while he waits."""
    for strike in strikes():
        line = Line()
        waiter, heir = line.asked(), line.sit()
        handed = handed_over_lock()
        line.hand_over(HandOver(handed, None))
        with strike:
            line.leave(LeaveQueue(waiter, 60, position), line.outside)
        give_up(line, waiter)
        assert line.left == []
        attempt = line.ask(heir)
        assert attempt.handed is handed
        assert not handed.doubtful, "nobody has asked for it"
        line.stand(heir)
        ended(line)


def test_interrupted_takeover_has_one_owner() -> None:
    """[H3] [H21] Either the queue has it, for the next one, or he has, and clears it away: never both, and never nobody."""
    for strike in strikes():
        line = Line()
        first, second = line.sit(), line.sit()
        handed = line.pass_on(reserved_fences=3)
        with strike:
            line.begin_wait(Wait(first, NEVER), line.outside)
            line.leave(LeaveQueue(first, 0.0, QueuePosition()), line.outside)
        give_up(line, first)
        taken = first.attempt is not None and first.attempt.adopted is handed
        mine = taken and not first.gave_back
        attempt = line.ask(second)
        assert (handed in (attempt.handed, attempt.adopted)) is not mine
        line.stand(second)
        ended(line)


def test_interrupted_handover_is_not_reused_unasked() -> None:
    """[H3] [H21] While his release may go on, and has the janitor free the lock, nobody goes on with it unasked."""
    for strike in strikes():
        line = Line()
        waiter = line.sit()
        handed = handed_over_lock(reserved_fences=3)
        handed.hold.state = State.RELEASING
        with strike:
            line.hand_over(HandOver(handed, None))
        free(line)
        attempt = line.ask(waiter)
        assert (attempt.adopted is handed) is (handed.hold.state is State.GONE)
        line.stand(waiter)
        ended(line)

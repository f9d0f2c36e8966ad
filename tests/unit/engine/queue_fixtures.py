"""Seats in queues, without the programs that take them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import HandOver, LeaveQueue, NotifyWaiters, Wait
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.queue_values import Attempt, HandedOverLock, QueuePosition, Waiter
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.engine.local_queue import LocalQueues
from tests.unit.core.holds import LEASE, a_hold

PLACE = LockId("store", "lock")
OTHER = LockId("store", "other")
NEVER = inf
SOON = 0.05
NOWHERE = QueuePosition()


def handed_over_lock(reserved_fences: int = 0) -> HandedOverLock:
    """A lock of ten seconds, acquired just now. Those who take it over must ask, or take a spare fence."""
    hold = a_hold(PLACE, clock.now())
    hold.confirmed_at += 60  # however slow this machine is, the store was asked lately
    hold.reserved_fences = reserved_fences
    return HandedOverLock(
        hold, lambda token: pytest.fail("nobody frees it here"), lambda: pytest.fail("nobody enters here")
    )


class Around:
    """Around the queues: a process whose inbox is called ``me``, or that is deaf."""

    def __init__(self) -> None:
        self.me = "me"
        self.tuning = DEFAULT
        self.gone: list[tuple[LockId, str, HandedOverLock | None]] = []
        """What was left to the janitor."""

    def subscribed_channel(self, channel: str) -> str:
        return channel + self.me if self.me else ""

    def left(self, lock_id: LockId, address: str, handed: HandedOverLock | None) -> None:
        self.gone.append((lock_id, address, handed))

    def call_at(self, at: float, ring: Callable[[], object]) -> Callable[[], object]:
        return lambda: None

    def put(self, job: Callable[[], object]) -> None:
        job()

    def may_block(self) -> None:
        pass


class Line(LocalQueues):
    """Queues, and what is around them."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = Around()

    @property
    def left(self) -> list[tuple[LockId, str, HandedOverLock | None]]:
        return self.outside.gone

    def sit(self, loop: Any = None, lock_id: LockId = PLACE, lease: int = LEASE) -> Waiter:
        """Somebody joins, and hasn't asked yet."""
        waiter = Waiter(lock_id, loop, "inbox:", lease)
        self._enqueue(waiter, self.outside)
        return waiter

    def stand(self, waiter: Waiter, pause: float | None = None, position: QueuePosition | None = NOWHERE) -> None:
        """Somebody leaves; his last question was answered."""
        self.leave(LeaveQueue(waiter, pause, position), self.outside)

    def attempt(
        self, waiter: Waiter, until: float, pause: float | None = None, position: QueuePosition | None = None
    ) -> bool:
        """Sleep; returns whether it was this seat's turn in time."""
        return self.wait(Wait(waiter, until, pause, position), self.outside) is not None

    def timed(self, waiter: Waiter, until: float = NEVER, pause: float | None = None) -> tuple[bool, float]:
        """As `turn`, with the seconds that it took, of a virtual clock."""
        begin_wait = clock.now()
        attempt = self.attempt(waiter, until, pause)
        return attempt, round(clock.now() - begin_wait, 6)

    def asked(self, loop: Any = None, lock_id: LockId = PLACE) -> Waiter:
        """A new head that has asked once."""
        waiter = self.sit(loop, lock_id)
        self.ask(waiter)
        return waiter

    def ask(self, waiter: Waiter, position: QueuePosition | None = None) -> Attempt:
        """It is this seat's turn, now."""
        attempt = self.begin_wait(Wait(waiter, clock.now() - 1, None, position), self.outside)
        assert isinstance(attempt, Attempt)
        return attempt

    def asleep(self, waiter: Waiter, pause: float | None = 60, position: QueuePosition | None = None) -> Waiter:
        """It isn't this seat's turn yet."""
        assert isinstance(self.begin_wait(Wait(waiter, NEVER, pause, position), self.outside), float)
        return waiter

    def woken(self, waiter: Waiter) -> bool:
        """Whether a thread that sleeps was woken, and has its turn."""
        begin_wait = clock.now()
        waiter.gate.wait(1)
        woken = clock.now() == begin_wait
        assert isinstance(self.continue_wait(Wait(waiter, NEVER), self.outside), Attempt) is woken
        return woken

    def pass_on(self, loop: Any = None, reserved_fences: int = 0) -> HandedOverLock:
        """A lock is handed over to whoever waits."""
        handed = handed_over_lock(reserved_fences=reserved_fences)
        assert self.hand_over(HandOver(handed, loop))
        return handed

    def free(self, lock_id: LockId = PLACE, *, woke: bool = False, address: str = "") -> None:
        """The lock was freed by this process."""
        self.notify_waiters(NotifyWaiters(lock_id, woke, address), self.outside)

    def closed(self, *, asked: bool = True) -> Waiter:
        """A seat of a loop that was closed while it was taken."""
        loop = asyncio.new_event_loop()
        waiter = self.asked(loop) if asked else self.sit(loop)
        loop.close()
        return waiter


def address(waiter: Waiter) -> str:
    """Where the store reaches the queue that somebody sits in."""
    return f"inbox:me {waiter.queue.number}"

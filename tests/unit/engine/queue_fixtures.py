"""Local wait queues with the test in the role of the lock programs and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import HandOver, LeaveQueue, NotifyWaiters, Wait
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.queue_entry import Entry, GrantTerms
from django_redis_locks.core.queue_values import Attempt, HandedOverLock, QueuePosition, Waiter
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.core.wait_events import ThreadEvent
from django_redis_locks.engine.local_queues import LocalQueues
from tests.unit.core.holds import LEASE, a_hold

LOCK_ID = LockId("store", "lock")
OTHER_LOCK_ID = LockId("store", "other")
NEVER = inf
SOON = 0.05
NOT_QUEUED = QueuePosition()
TERMS = GrantTerms(3000, '["here",1]', ("lock", "waiters", "fence"))
"""The terms on which the store grants the lock to a waiter."""


def handed_over_lock(reserved_fences: int = 0) -> HandedOverLock:
    """A lock of ten seconds, acquired just now. A waiter adopts it by a request to the store, or with a reserved
    fence."""
    hold = a_hold(LOCK_ID, clock.now())
    hold.confirmed_at += 60  # recent enough for a local take-over on a slow machine, too
    hold.reserved_fences = reserved_fences
    return HandedOverLock(hold, lambda token: pytest.fail("it is not to be freed"))


class FakeEngine:
    """The engine of the queues: a process whose channel ends in ``process_name``, or, if empty, without
    subscription."""

    def __init__(self) -> None:
        self.process_name = "me"
        self.tuning = DEFAULT
        self.leftovers: list[tuple[LockId, str, HandedOverLock | None]] = []
        """What was reported for cleanup."""
        self.returned_grants: list[tuple[str, int]] = []
        self._handed: HandedOverLock | None = None

    def subscribed_channel(self, channel: str) -> str:
        return channel + self.process_name if self.process_name else ""

    def wait_for_message(self, event: ThreadEvent, seconds: float, channel: str) -> None:
        event.wait(seconds)

    def free_handed_over(self, handed: HandedOverLock) -> None:
        self._handed = handed

    def unregister(self, lock_id: LockId, keys: tuple[str, ...], address: str) -> None:
        self.leftovers.append((lock_id, address, self._handed))
        self._handed = None

    def return_grant(self, lock_id: LockId, keys: tuple[str, ...], token: str, fence: int) -> None:
        self.returned_grants.append((token, fence))

    def call_at(self, at: float, callback: Callable[[], object]) -> Callable[[], object]:
        return lambda: None

    def submit(self, job: Callable[[], object]) -> None:
        job()

    def may_block(self) -> None:
        pass


class StandaloneQueues(LocalQueues):
    """Local wait queues with a fake engine, and short calls for the tests."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = FakeEngine()

    @property
    def leftovers(self) -> list[tuple[LockId, str, HandedOverLock | None]]:
        return self.engine.leftovers

    def join(self, loop: Any = None, lock_id: LockId = LOCK_ID, lease: int = LEASE) -> Waiter:
        """A new waiter joins the queue; it has made no attempt yet."""
        waiter = Waiter(lock_id, loop, "inbox:", lease)
        self._enqueue(waiter, self.engine)
        return waiter

    def leave_queue(
        self, waiter: Waiter, pause: float | None = None, position: QueuePosition | None = NOT_QUEUED
    ) -> None:
        """A waiter leaves; its last attempt was answered."""
        self.leave(LeaveQueue(waiter, pause, position), self.engine)

    def wait_for_turn(
        self, waiter: Waiter, until: float, pause: float | None = None, position: QueuePosition | None = None
    ) -> bool:
        """Sleep; returns whether the waiter's turn came in time."""
        return self.wait(Wait(waiter, until, pause, position), self.engine) is not None

    def timed_wait(self, waiter: Waiter, until: float = NEVER, pause: float | None = None) -> tuple[bool, float]:
        """Like ``wait_for_turn``; also returns the seconds that it took by the virtual clock."""
        started = clock.now()
        attempt = self.wait_for_turn(waiter, until, pause)
        return attempt, round(clock.now() - started, 6)

    def join_and_attempt(self, loop: Any = None, lock_id: LockId = LOCK_ID) -> Waiter:
        """A new waiter that has made one attempt as head of the queue."""
        waiter = self.join(loop, lock_id)
        self.attempt_now(waiter)
        return waiter

    def attempt_now(self, waiter: Waiter, position: QueuePosition | None = None) -> Attempt:
        """Make an attempt: it is this waiter's turn now."""
        attempt = self.begin_wait(Wait(waiter, clock.now() - 1, None, position), self.engine)
        assert isinstance(attempt, Attempt)
        return attempt

    def begin_sleep(self, waiter: Waiter, pause: float | None = 60, position: QueuePosition | None = None) -> Waiter:
        """Begin to wait: it isn't this waiter's turn yet."""
        assert isinstance(self.begin_wait(Wait(waiter, NEVER, pause, position), self.engine), float)
        return waiter

    def is_woken(self, waiter: Waiter) -> bool:
        """Whether a sleeping thread was woken and has its turn."""
        started = clock.now()
        waiter.event.wait(1)
        woken = clock.now() == started
        assert isinstance(self.continue_wait(Wait(waiter, NEVER), self.engine), Attempt) is woken
        return woken

    def hand_over_lock(self, loop: Any = None, reserved_fences: int = 0) -> HandedOverLock:
        """Hand a lock over to the waiters of a loop."""
        handed = handed_over_lock(reserved_fences=reserved_fences)
        assert self.hand_over(HandOver(handed, loop))
        return handed

    def notify_release(self, lock_id: LockId = LOCK_ID, *, passed_on: bool = False, entry: Entry | None = None) -> None:
        """Notify the waiters that this process has freed the lock."""
        self.notify_waiters(NotifyWaiters(lock_id, passed_on, entry), self.engine)

    def waiter_of_closed_loop(self, *, asked: bool = True) -> Waiter:
        """A waiter whose loop was closed while it was in the queue."""
        loop = asyncio.new_event_loop()
        waiter = self.join_and_attempt(loop) if asked else self.join(loop)
        loop.close()
        return waiter


def address_of(waiter: Waiter) -> str:
    """The address under which the store notifies the queue of a waiter."""
    return f"inbox:me {waiter.queue.number}"

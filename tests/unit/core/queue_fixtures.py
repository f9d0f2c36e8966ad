"""Seats in queues, without the programs that take them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import Freed, Handed, HandOver, Leave, Place, Seat, Standing, Turn, Wait
from django_redis_locks.core.queues import Queues
from django_redis_locks.core.tuning import DEFAULT
from tests.unit.core.holds import a_hold

PLACE = Place("store", "lock")
OTHER = Place("store", "other")
NEVER = inf
SOON = 0.05
BUSY = 8.0
"""Seconds that a busy machine may need on top of what is measured."""
NOWHERE = Standing()


def alarm(at: float, ring: Callable[[], object]) -> Callable[[], None]:
    """As the janitor's: rings from another thread."""
    timer = threading.Timer(max(0.0, at - clock.now()), ring)
    timer.daemon = True
    timer.start()
    return timer.cancel


def handed_over_lock(place: Place = PLACE, spare: int = 0) -> Handed:
    """A lock of ten seconds, acquired just now. Those who take it over must ask, or take a spare fence."""
    hold = a_hold(place, clock.now())
    hold.asked += 60  # however slow this machine is, the store was asked lately
    hold.spare = spare
    return Handed(hold, lambda token: pytest.fail("nobody frees it here"), lambda: pytest.fail("nobody enters here"))


class Around:
    """Around the queues: a process whose inbox is called ``me``, or that is deaf."""

    def __init__(self) -> None:
        self.me = "me"
        self.tuning = DEFAULT
        self.gone: list[tuple[Place, str, Handed | None]] = []
        """What was left to the janitor."""
        self.alarm = alarm
        self.here = threading.local()

    def hear(self, channel: str) -> str:
        return channel + self.me if self.me else ""

    def left(self, place: Place, address: str, handed: Handed | None) -> None:
        self.gone.append((place, address, handed))

    def may_block(self) -> None:
        """Somebody is about to sleep, and his gate can be opened."""
        if hasattr(self.here, "asleep"):
            self.here.asleep.set()


class Line(Queues):
    """Queues, and what is around them."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = Around()

    @property
    def left(self) -> list[tuple[Place, str, Handed | None]]:
        return self.outside.gone

    def sit(self, home: Any = None, place: Place = PLACE, lease: int = 0) -> Seat:
        """Somebody joins, and hasn't asked yet."""
        seat = Seat(place, home, "inbox:", lease)
        self._join(seat, self.outside)
        return seat

    def stand(self, seat: Seat, pause: float | None = None, standing: Standing | None = NOWHERE) -> None:
        """Somebody leaves; his last question was answered."""
        self.leave(Leave(seat, pause, standing), self.outside)

    def turn(self, seat: Seat, until: float, pause: float | None = None, standing: Standing | None = None) -> bool:
        """Sleep; returns whether it was this seat's turn in time. A test that would sleep for ever goes on, too late."""
        return self.wait(Wait(seat, min(until, clock.now() + 30), pause, standing), self.outside) is not None

    def timed(self, seat: Seat, until: float = NEVER, pause: float | None = None) -> tuple[bool, float]:
        """As `turn`, with the seconds that it took, of a virtual clock."""
        begin = clock.now()
        turn = self.turn(seat, until, pause)
        return turn, round(clock.now() - begin, 6)

    async def aturn(self, seat: Seat, until: float, pause: float | None = None) -> bool:
        return await self.await_(Wait(seat, until, pause), self.outside) is not None

    def asked(self, home: Any = None, place: Place = PLACE, lease: int = 0) -> Seat:
        """A new head that has asked once."""
        seat = self.sit(home, place, lease)
        self.ask(seat)
        return seat

    def ask(self, seat: Seat, standing: Standing | None = None) -> Turn:
        """It is this seat's turn, now."""
        turn = self.wait(Wait(seat, clock.now() - 1, None, standing), self.outside)
        assert turn is not None
        return turn

    def pass_on(self, home: Any = None, spare: int = 0) -> Handed:
        """A lock is handed over to whoever waits."""
        handed = handed_over_lock(spare=spare)
        assert self.hand_over(HandOver(handed, home))
        return handed

    def free(self, place: Place = PLACE, *, woke: bool = False, address: str = "") -> None:
        """The lock was freed by this process."""
        self.freed(Freed(place, woke, address), self.outside)

    def sleeping(self, threads: ThreadPoolExecutor, wait: Wait) -> Future[Turn | None]:
        """Have a thread wait, and return when it sleeps. It doesn't wait for ever, whatever the test comes to."""
        wait = replace(wait, until=min(wait.until, clock.now() + 30))
        asleep = threading.Event()

        def sleep() -> Turn | None:
            self.outside.here.asleep = asleep
            return self.wait(wait, self.outside)

        future = threads.submit(sleep)
        assert asleep.wait(20)
        return future


def address(seat: Seat) -> str:
    """Where the store reaches the queue that somebody sits in."""
    return f"inbox:me {seat.queue.number}"


def in_loop(story: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
    async def main() -> Any:
        return await story(asyncio.get_running_loop())

    return asyncio.run(main())

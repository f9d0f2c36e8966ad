"""Who waits for what in this process: one queue per key and *home*.

A home is the threads of the process, or one event loop: a blocked loop at the head of a common queue would hold up
every thread behind it. Only the head of a queue asks the store; the others cost nothing. A queue counts its wake-ups,
and the head asks again whenever the count moved since it last asked, so a wake-up that comes while the head is asking
is not lost.

What comes for a waiter is the queue's: a wake-up, a place in the store's line, a lock that is handed over. Whoever is
head uses it, and what is left when the last one leaves goes to the janitor.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from math import inf
from random import random
from typing import TYPE_CHECKING

from ..core import clock
from ..core.hold import State
from .home_queue import _Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.effects import Attempt, HandOver, LeaveQueue, LockId, NotifyWaiters, Requeue, Wait, Waiter
    from .home_queue import Outside


MANY = 1024  # keys that were waited for lately are remembered, at most


class LocalQueues:
    """All queues of one store in this process."""

    def __init__(self) -> None:
        self._queues: dict[LockId, dict[object, _Queue]] = {}
        self._hot: dict[LockId, float] = {}  # until when it is likely that one has to wait
        self._polite: dict[LockId, float] = {}  # until when others go first
        self._asking: dict[LockId, Waiter] = {}  # the seat that asks where no other one waits
        self.queued: Callable[[LockId], bool] = self._queues.__contains__
        """Whether anybody waits for a place."""
        self.clear()

    def clear(self) -> None:
        """A fork's child has none of its parent's waiters."""
        self._mutex = threading.RLock()
        self._queues.clear()
        self._asking.clear()
        self.forget_times()

    def forget_times(self) -> None:
        """Another clock counts from now on: what was noted on the one before may lie in its distant future."""
        self._polite.clear()
        self._hot.clear()

    def __len__(self) -> int:
        """How many keys somebody waits for."""
        return len(self._queues)

    def calm(self, seat: Waiter) -> bool:
        """Whether nobody waits there, or did lately. Who hears so has the first place in a queue that nobody has made yet:
        whoever comes while he asks makes it, and sits down behind him."""
        place = seat.place
        if place in self._queues or place in self._asking or (self._hot and self._hot.get(place, 0.0) > clock.now()):
            return False
        self._asking[place] = seat
        return True

    def cool(self, seat: Waiter) -> bool:
        """He has his answer, and there is nothing to wait for; False if others came meanwhile, whose queue he is to leave."""
        return self._asking.pop(seat.place, None) is seat

    def _join(self, seat: Waiter, outside: Outside) -> None:
        place, home = seat.place, seat.home
        homes = self._queues.get(place)
        if homes is None:
            homes = self._queues[place] = {}
        queue = homes.get(home)
        if queue is not None:
            self._seat(seat, queue, outside)
            return
        if homes:
            self._drop_closed(place, homes, outside)
        next_try = self._polite.get(place, -inf) if self._polite else -inf
        queue = homes[home] = _Queue(home, next_try)
        first = self._asking.get(place)
        if first is not None and first.home is home and self._asking.pop(place, None) is first and first is not seat:
            self._seat(first, queue, outside)
        self._seat(seat, queue, outside)

    def _seat(self, seat: Waiter, queue: _Queue, outside: Outside) -> None:
        seat.queue = queue
        queue.seats.append(seat)
        caller = seat.caller()
        if caller is not None and caller is not True:
            seat.caller = weakref.ref(caller, partial(self._abandoned, queue, seat.place, outside))

    def _abandoned(self, queue: _Queue, place: LockId, outside: Outside, _: object) -> None:
        """A caller is gone and has left its seat behind. A finalizer's: any lock may be held."""
        outside.put(partial(self._take_out, queue, place, outside))
        queue.rouse_all()

    def _take_out(self, queue: _Queue, place: LockId, outside: Outside) -> None:
        with self._mutex:
            homes = self._queues.get(place, {})
            if homes.get(queue.home) is queue and not queue.occupied():
                queue.leave_behind(place, outside)
                del homes[queue.home]
                if not homes:
                    self._queues.pop(place, None)
            else:
                queue.rouse()

    def leave(self, effect: LeaveQueue, outside: Outside) -> None:
        """Every step may be done again: a signal handler may have raised between any two of them."""
        seat = effect.seat
        place = seat.place
        with self._mutex:
            if seat.queue is not None:
                self._leave(seat.queue, effect, outside)
            elif self._asking.get(place) is seat:
                del self._asking[place]
            homes = self._queues.get(place)
            if homes is not None:
                found = homes.get(seat.home)
                if found is not None and not found.occupied():
                    del homes[seat.home]
                if homes:
                    self._drop_closed(place, homes, outside)
                if not homes:
                    self._note(self._hot, place, outside.tuning.contention_memory)
                    self._queues.pop(place, None)

    def _note(self, until: dict[LockId, float], place: LockId, seconds: float) -> None:
        """For so long. What is forgotten costs a round trip or two."""
        if len(until) >= MANY:
            until.clear()
        until[place] = clock.now() + seconds

    def _drop_closed(self, place: LockId, homes: dict[object, _Queue], outside: Outside) -> None:
        for stale in [queue for queue in homes.values() if queue.closed()]:
            stale.leave_behind(place, outside)  # before it is forgotten: see leave()
            del homes[stale.home]

    def _leave(self, queue: _Queue, effect: LeaveQueue, outside: Outside) -> None:
        seat, standing = effect.seat, effect.standing
        if standing is not None:
            queue.told(seat, standing)
        else:
            queue.give_up(seat)
        if effect.pause is not None:
            queue.next_try = clock.now() + effect.pause
        seats = queue.seats
        if seat in seats:
            seats.remove(seat)
        if queue.occupied():
            queue.rouse()
        else:
            queue.leave_behind(seat.place, outside)

    def hand_over(self, effect: HandOver) -> bool:
        place = effect.handed.hold.place
        if place in self._queues:
            with self._mutex:
                queue = self._queues.get(place, {}).get(effect.home)
                if queue is not None and queue.occupied():
                    queue.handed = effect.handed
                    queue.rouse()
                    # last: until then its holder, if he is interrupted, has the janitor free it
                    effect.handed.hold.state = State.GONE
                    return True
        return False

    def line_up(self, effect: Requeue, outside: Outside) -> str:
        with self._mutex:
            queue = self._queues.get(effect.place, {}).get(effect.home)
            if queue is None or not queue.occupied():
                return ""
            channel = outside.hear(queue.seats[0].channel)
            if channel:
                queue.address, queue.arrival = f"{channel} {queue.number}", 0
            return queue.address

    def freed(self, effect: NotifyWaiters, outside: Outside) -> None:
        """Who hears of it from the store, because it is registered, is left to that."""
        place = effect.place
        if effect.address:
            number = effect.address.rpartition(" ")[2]
            with self._mutex:
                if not any(queue.number == number and queue.occupied() for queue in self._of(place)):
                    outside.left(place, effect.address, None)
        if effect.woke:
            now, yield_time = clock.now(), outside.tuning.yield_time
            with self._mutex:
                self._note(self._polite, place, yield_time)
                self._note(self._hot, place, outside.tuning.contention_memory)
                for queue in self._of(place):
                    if not queue.address:
                        queue.next_try = min(queue.next_try, now + yield_time)
                        queue.rouse()
        elif place in self._queues:
            with self._mutex:
                for queue in self._of(place):
                    queue.wake()

    def wake(self, place: LockId, number: str) -> bool:
        """The store has taken this queue out of the line, since the lock may be free; False if nobody waits there."""
        with self._mutex:
            for queue in self._of(place):
                if queue.number == number and queue.occupied() and not queue.closed():
                    queue.address = ""
                    queue.wake()
                    return True
        return False

    def wake_all(self) -> None:
        """Wake-ups may have been missed."""
        with self._mutex:
            for place in list(self._queues):
                for queue in self._of(place):
                    queue.wake()

    def _of(self, place: LockId) -> list[_Queue]:
        return list(self._queues.get(place, {}).values())

    def wait(self, effect: Wait, outside: Outside) -> Attempt | None:
        turn = self.begin(effect, outside)
        while type(turn) is float:
            outside.may_block()
            effect.seat.gate.wait(turn)
            turn = self.go_on(effect, outside)
        return turn  # type: ignore[return-value]

    async def await_(self, effect: Wait, outside: Outside) -> Attempt | None:
        turn = self.begin(effect, outside)
        while type(turn) is float:
            await effect.seat.gate.wait(turn)
            turn = self.go_on(effect, outside)
        return turn  # type: ignore[return-value]

    def begin(self, effect: Wait, outside: Outside) -> Attempt | float | None:
        """A wait begins: as ``_Queue.turn``."""
        seat, pause, standing = effect.seat, effect.pause, effect.standing
        with self._mutex:
            if seat.queue is None or seat not in seat.queue.seats:  # who sat it down may have been interrupted
                self._join(seat, outside)
            queue: _Queue = seat.queue
            if standing is not None:
                queue.told(seat, standing)
            if pause is not None:
                spread = random() * outside.tuning.jitter if pause else 0.0  # noqa: S311 - no secret
                queue.next_try = clock.now() + pause + spread
            queue.occupied()
            return queue.turn(seat, effect.until, outside)

    def go_on(self, effect: Wait, outside: Outside) -> Attempt | float | None:
        """A sleeper woke up: as ``_Queue.turn``."""
        with self._mutex:
            queue: _Queue = effect.seat.queue
            queue.occupied()
            return queue.turn(effect.seat, effect.until, outside)

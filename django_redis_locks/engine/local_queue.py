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

    from ..core.effects import HandOver, LeaveQueue, NotifyWaiters, Requeue, Wait
    from ..core.keys import LockId
    from ..core.queue_values import Attempt, Waiter
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

    def uncontended(self, waiter: Waiter) -> bool:
        """Whether nobody waits there, or did lately. Who hears so has the first place in a queue that nobody has made yet:
        whoever comes while he asks makes it, and sits down behind him."""
        lock_id = waiter.lock_id
        if (
            lock_id in self._queues
            or lock_id in self._asking
            or (self._hot and self._hot.get(lock_id, 0.0) > clock.now())
        ):
            return False
        self._asking[lock_id] = waiter
        return True

    def end_uncontended(self, waiter: Waiter) -> bool:
        """He has his answer, and there is nothing to wait for; False if others came meanwhile, whose queue he is to leave."""
        return self._asking.pop(waiter.lock_id, None) is waiter

    def _join(self, waiter: Waiter, outside: Outside) -> None:
        lock_id, home = waiter.lock_id, waiter.home
        homes = self._queues.get(lock_id)
        if homes is None:
            homes = self._queues[lock_id] = {}
        queue = homes.get(home)
        if queue is not None:
            self._seat(waiter, queue, outside)
            return
        if homes:
            self._drop_closed(lock_id, homes, outside)
        next_try = self._polite.get(lock_id, -inf) if self._polite else -inf
        queue = homes[home] = _Queue(home, next_try)
        first = self._asking.get(lock_id)
        if (
            first is not None
            and first.home is home
            and self._asking.pop(lock_id, None) is first
            and first is not waiter
        ):
            self._seat(first, queue, outside)
        self._seat(waiter, queue, outside)

    def _seat(self, waiter: Waiter, queue: _Queue, outside: Outside) -> None:
        waiter.queue = queue
        queue.waiters.append(waiter)
        caller = waiter.caller()
        if caller is not None and caller is not True:
            waiter.caller = weakref.ref(caller, partial(self._abandoned, queue, waiter.lock_id, outside))

    def _abandoned(self, queue: _Queue, lock_id: LockId, outside: Outside, _: object) -> None:
        """A caller is gone and has left its seat behind. A finalizer's: any lock may be held."""
        outside.put(partial(self._take_out, queue, lock_id, outside))
        queue.rouse_all()

    def _take_out(self, queue: _Queue, lock_id: LockId, outside: Outside) -> None:
        with self._mutex:
            homes = self._queues.get(lock_id, {})
            if homes.get(queue.home) is queue and not queue.occupied():
                queue.leave_behind(lock_id, outside)
                del homes[queue.home]
                if not homes:
                    self._queues.pop(lock_id, None)
            else:
                queue.rouse()

    def leave(self, effect: LeaveQueue, outside: Outside) -> None:
        """Every step may be done again: a signal handler may have raised between any two of them."""
        waiter = effect.waiter
        lock_id = waiter.lock_id
        with self._mutex:
            if waiter.queue is not None:
                self._leave(waiter.queue, effect, outside)
            elif self._asking.get(lock_id) is waiter:
                del self._asking[lock_id]
            homes = self._queues.get(lock_id)
            if homes is not None:
                found = homes.get(waiter.home)
                if found is not None and not found.occupied():
                    del homes[waiter.home]
                if homes:
                    self._drop_closed(lock_id, homes, outside)
                if not homes:
                    self._note(self._hot, lock_id, outside.tuning.contention_memory)
                    self._queues.pop(lock_id, None)

    def _note(self, until: dict[LockId, float], lock_id: LockId, seconds: float) -> None:
        """For so long. What is forgotten costs a round trip or two."""
        if len(until) >= MANY:
            until.clear()
        until[lock_id] = clock.now() + seconds

    def _drop_closed(self, lock_id: LockId, homes: dict[object, _Queue], outside: Outside) -> None:
        for stale in [queue for queue in homes.values() if queue.closed()]:
            stale.leave_behind(lock_id, outside)  # before it is forgotten: see leave()
            del homes[stale.home]

    def _leave(self, queue: _Queue, effect: LeaveQueue, outside: Outside) -> None:
        waiter, position = effect.waiter, effect.position
        if position is not None:
            queue.told(waiter, position)
        else:
            queue.give_up(waiter)
        if effect.pause is not None:
            queue.next_try = clock.now() + effect.pause
        waiters = queue.waiters
        if waiter in waiters:
            waiters.remove(waiter)
        if queue.occupied():
            queue.rouse()
        else:
            queue.leave_behind(waiter.lock_id, outside)

    def hand_over(self, effect: HandOver) -> bool:
        lock_id = effect.handed.hold.lock_id
        if lock_id in self._queues:
            with self._mutex:
                queue = self._queues.get(lock_id, {}).get(effect.home)
                if queue is not None and queue.occupied():
                    queue.handed = effect.handed
                    queue.rouse()
                    # last: until then its holder, if he is interrupted, has the janitor free it
                    effect.handed.hold.state = State.GONE
                    return True
        return False

    def requeue(self, effect: Requeue, outside: Outside) -> str:
        with self._mutex:
            queue = self._queues.get(effect.lock_id, {}).get(effect.home)
            if queue is None or not queue.occupied():
                return ""
            channel = outside.subscribed_channel(queue.waiters[0].channel)
            if channel:
                queue.address, queue.enqueued_at = f"{channel} {queue.number}", 0
            return queue.address

    def freed(self, effect: NotifyWaiters, outside: Outside) -> None:
        """Who hears of it from the store, because it is registered, is left to that."""
        lock_id = effect.lock_id
        if effect.address:
            number = effect.address.rpartition(" ")[2]
            with self._mutex:
                if not any(queue.number == number and queue.occupied() for queue in self._of(lock_id)):
                    outside.left(lock_id, effect.address, None)
        if effect.woke:
            now, yield_time = clock.now(), outside.tuning.yield_time
            with self._mutex:
                self._note(self._polite, lock_id, yield_time)
                self._note(self._hot, lock_id, outside.tuning.contention_memory)
                for queue in self._of(lock_id):
                    if not queue.address:
                        queue.next_try = min(queue.next_try, now + yield_time)
                        queue.rouse()
        elif lock_id in self._queues:
            with self._mutex:
                for queue in self._of(lock_id):
                    queue.wake()

    def wake(self, lock_id: LockId, number: str) -> bool:
        """The store has taken this queue out of the line, since the lock may be free; False if nobody waits there."""
        with self._mutex:
            for queue in self._of(lock_id):
                if queue.number == number and queue.occupied() and not queue.closed():
                    queue.address = ""
                    queue.wake()
                    return True
        return False

    def wake_all(self) -> None:
        """Wake-ups may have been missed."""
        with self._mutex:
            for lock_id in list(self._queues):
                for queue in self._of(lock_id):
                    queue.wake()

    def _of(self, lock_id: LockId) -> list[_Queue]:
        return list(self._queues.get(lock_id, {}).values())

    def wait(self, effect: Wait, outside: Outside) -> Attempt | None:
        attempt = self.begin(effect, outside)
        while type(attempt) is float:
            outside.may_block()
            effect.waiter.gate.wait(attempt)
            attempt = self.go_on(effect, outside)
        return attempt  # type: ignore[return-value]

    async def await_(self, effect: Wait, outside: Outside) -> Attempt | None:
        attempt = self.begin(effect, outside)
        while type(attempt) is float:
            await effect.waiter.gate.wait(attempt)
            attempt = self.go_on(effect, outside)
        return attempt  # type: ignore[return-value]

    def begin(self, effect: Wait, outside: Outside) -> Attempt | float | None:
        """A wait begins: as ``_Queue.attempt``."""
        waiter, pause, position = effect.waiter, effect.pause, effect.position
        with self._mutex:
            if waiter.queue is None or waiter not in waiter.queue.waiters:  # who sat it down may have been interrupted
                self._join(waiter, outside)
            queue: _Queue = waiter.queue
            if position is not None:
                queue.told(waiter, position)
            if pause is not None:
                spread = random() * outside.tuning.jitter if pause else 0.0  # noqa: S311 - no secret
                queue.next_try = clock.now() + pause + spread
            queue.occupied()
            return queue.attempt(waiter, effect.until, outside)

    def go_on(self, effect: Wait, outside: Outside) -> Attempt | float | None:
        """A sleeper woke up: as ``_Queue.attempt``."""
        with self._mutex:
            queue: _Queue = effect.waiter.queue
            queue.occupied()
            return queue.attempt(effect.waiter, effect.until, outside)

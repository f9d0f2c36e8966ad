"""The table of the local wait queues (``WaitQueue``) of one store: one queue per lock and event loop, and one per lock
for the threads of the process. A waiter with a *line of its own* has a queue of its own instead, so that the store knows
each of them, and its order is that of all waiters of all processes.

Loops and threads don't share a queue, because a blocked loop at its head would hold up every waiter behind it. Only the
head of a queue sends requests; the other waiters cost nothing. A queue counts its wake-ups, and the head tries again
whenever the count has changed since its last attempt, so a wake-up that arrives during an attempt is not lost.

A wake-up, an entry in the store's wait queue, and a lock that is granted or handed over belong to the queue, not to a
waiter: the head uses them. What is left when the last waiter leaves goes to the maintenance thread.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from random import random
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from ..core import clock
from ..core.hold import State
from .wait_queue import WaitQueue

if TYPE_CHECKING:
    from collections.abc import Container

    from ..core.effects import HandOver, LeaveQueue, NotifyWaiters, Requeue, Wait
    from ..core.keys import LockId
    from ..core.queue_entry import Entry
    from ..core.queue_values import Attempt, Waiter
    from .wait_queue import QueueEngine


MAX_REMEMBERED_KEYS = 1024
"""The number of locks with recent waiters in one table. Beyond it all of them are forgotten, which costs a round trip or
two."""

CHECKS_PER_CALL = 8
"""How many queues of a lock a caller checks for an ended loop, on average. All are checked at once, so with many of them
most callers check none."""

R = TypeVar("R")


def _remember(table: dict[LockId, R], lock_id: LockId, value: R) -> None:
    """Set the value of a lock, with a bound on the memory."""
    if len(table) >= MAX_REMEMBERED_KEYS:
        table.clear()
    table[lock_id] = value


class LocalQueues:
    """All queues of one store in this process."""

    def __init__(self) -> None:
        self._queues: dict[LockId, dict[object, WaitQueue]] = {}  # by lock and line
        self._by_number: WeakValueDictionary[tuple[LockId, str], WaitQueue] = WeakValueDictionary()
        """For messages. The values are weak, so that an interrupted caller leaves nothing behind."""
        self._contended_until: dict[LockId, float] = {}  # until when the next caller probably has to wait
        self._grant_keys: dict[LockId, tuple[str, ...]] = {}  # the keys with which a lock that was granted is freed
        self._first_waiters: dict[LockId, Waiter] = {}  # the waiter that sends the first request, without a queue
        self.queued: Container[LockId] = self._queues
        """The locks for which this process has a waiter."""
        self.end_uncontended = self._first_waiters.pop
        """See ``Performer``."""
        self.clear()

    def clear(self) -> None:
        """Remove all waiters. A forked child has none of its parent's."""
        self._mutex = threading.RLock()
        self._checks_left_out = 0
        self._queues.clear()
        self._by_number = WeakValueDictionary()  # another thread of the parent may have been changing it
        self._first_waiters.clear()
        self._grant_keys.clear()
        self.forget_times()

    def forget_times(self) -> None:
        """Forget all times, because another clock was installed: on it they may lie in the distant future."""
        self._contended_until.clear()

    def __len__(self) -> int:
        """The number of locks with waiters."""
        return len(self._queues)

    def uncontended(self, waiter: Waiter) -> bool:
        """Return True if this process has no waiter for the lock and had none within ``contention_memory``. The caller
        is then registered as the head of the lock's queue, which the next caller creates; later callers queue behind
        it. Behind a waiter with a line of its own no other caller queues, so it isn't registered."""
        lock_id = waiter.lock_id
        if (
            lock_id in self._queues
            or lock_id in self._first_waiters
            or (self._contended_until and self._contended_until.get(lock_id, 0.0) > clock.now())
        ):
            return False
        if waiter.line is waiter.loop:
            self._first_waiters[lock_id] = waiter
        return True

    def _enqueue(self, waiter: Waiter, engine: QueueEngine) -> None:
        lock_id, line = waiter.lock_id, waiter.line
        by_line = self._queues.get(lock_id)
        if by_line is None:
            by_line = self._queues[lock_id] = {}
        queue = by_line.get(line)
        if queue is not None:
            self._append(waiter, queue, engine)
            return
        if by_line:
            self._drop_ended_loops(lock_id, by_line, engine)
        queue = WaitQueue(line, waiter.loop, () if waiter.terms is None else waiter.terms.keys)
        self._by_number[lock_id, queue.number] = by_line[line] = queue
        if queue.keys:
            _remember(self._grant_keys, lock_id, queue.keys)
        first = self._first_waiters.get(lock_id)
        if first is not None and first.line is line:
            found = self._first_waiters.pop(lock_id, None)  # without the mutex, end_uncontended() may have removed it
            if found is first and first is not waiter:
                self._append(first, queue, engine)
        self._append(waiter, queue, engine)

    def _append(self, waiter: Waiter, queue: WaitQueue, engine: QueueEngine) -> None:
        waiter.queue = queue
        queue.waiters.append(waiter)
        caller = waiter.caller()
        if caller is not None and caller is not True:
            waiter.caller = weakref.ref(caller, partial(self._abandoned, queue, waiter.lock_id, engine))

    def _abandoned(self, queue: WaitQueue, lock_id: LockId, engine: QueueEngine, _: object) -> None:
        """Remove the waiter of a caller that was collected. Called by a finalizer, so any mutex may be held."""
        engine.submit(partial(self._drop_abandoned, queue, lock_id, engine))
        queue.notify_all()

    def _drop_abandoned(self, queue: WaitQueue, lock_id: LockId, engine: QueueEngine) -> None:
        with self._mutex:
            by_line = self._queues.get(lock_id, {})
            if by_line.get(queue.line) is queue and queue.head() is None:
                queue.report_leftovers(lock_id, engine)
                del by_line[queue.line]
                if not by_line:
                    self._queues.pop(lock_id, None)
            else:
                queue.notify_head()

    def leave(self, effect: LeaveQueue, engine: QueueEngine) -> None:
        """Remove a waiter from its queue. A signal handler may raise between any two steps, so each of them is
        repeatable."""
        waiter = effect.waiter
        lock_id = waiter.lock_id
        with self._mutex:
            if waiter.queue is not None:
                self._remove(waiter.queue, effect, engine)
            elif self._first_waiters.get(lock_id) is waiter:
                self._first_waiters.pop(lock_id, None)  # without the mutex, end_uncontended() may have removed it
            by_line = self._queues.get(lock_id)
            if by_line is not None:
                found = by_line.get(waiter.line)
                if found is not None and (not found.waiters or found.head() is None):
                    del by_line[waiter.line]
                if by_line:
                    self._drop_ended_loops(lock_id, by_line, engine)
                if not by_line:
                    _remember(self._contended_until, lock_id, clock.now() + engine.tuning.contention_memory)
                    self._queues.pop(lock_id, None)

    def _drop_ended_loops(self, lock_id: LockId, by_line: dict[object, WaitQueue], engine: QueueEngine) -> None:
        """Remove the queues of loops that don't run. A loop that was dropped without being closed can be collected
        then, which ends its tasks; if it is run again, its waiters go on with their queue."""
        self._checks_left_out += CHECKS_PER_CALL
        if self._checks_left_out < len(by_line):
            return
        self._checks_left_out = 0
        for queue in list(by_line.values()):
            if queue.loop_closed():
                queue.report_leftovers(lock_id, engine)  # before it is forgotten: see leave()
                del by_line[queue.line]
            elif queue.loop_stopped(engine.tuning.max_poll_interval):
                del by_line[queue.line]

    def _remove(self, queue: WaitQueue, effect: LeaveQueue, engine: QueueEngine) -> None:
        waiter, position = effect.waiter, effect.position
        if position is not None:
            queue.record_reply(waiter, position)
            waiter.attempt = None  # it and the lock that it adopted refer to each other
        else:
            queue.record_no_reply(waiter)
        if effect.pause is not None:
            queue.next_try = clock.now() + effect.pause
        waiters = queue.waiters
        if waiter in waiters:
            waiters.remove(waiter)
        if waiters and queue.head() is not None:
            queue.notify_head()
        else:
            queue.report_leftovers(waiter.lock_id, engine)

    def hand_over(self, effect: HandOver) -> bool:
        """Hand a lock to the first waiter of the queue of a thread or loop. Return whether there was one."""
        lock_id = effect.handed.hold.lock_id
        if lock_id in self._queues:
            with self._mutex:
                queue = self._queues.get(lock_id, {}).get(effect.loop)
                if queue is not None and queue.head() is not None:
                    queue.handed = effect.handed
                    queue.notify_head()
                    # last: a holder that is interrupted before this has the maintenance thread free the lock
                    effect.handed.hold.state = State.GONE
                    return True
        return False

    def requeue(self, effect: Requeue, engine: QueueEngine) -> Entry | None:
        """Return the entry with which the queue of a thread or loop is to be registered in the store again; None if it
        has no waiter."""
        with self._mutex:
            queue = self._queues.get(effect.lock_id, {}).get(effect.loop)
            if queue is None or queue.head() is None:
                return None
            head = next((waiter for waiter in queue.waiters if waiter.terms is not None), None)
            channel = "" if head is None else engine.subscribed_channel(head.channel)
            if head is None or not channel or queue.granted is not None:
                return None
            if queue.entry is None:
                queue.entry = queue.new_entry(channel, head)
                queue.entry.sent = clock.now()
            queue.enqueued_at = 0
            return queue.entry

    def notify_waiters(self, effect: NotifyWaiters, engine: QueueEngine) -> None:
        """Wake the waiters of a freed lock. If the store has granted it to a waiter, the queues that are registered there
        sleep on; a waiter with a line of its own sleeps on in any case, because whatever frees the lock grants it to the
        first in line."""
        lock_id, entry = effect.lock_id, effect.entry
        with self._mutex:
            if entry is not None and not entry.used and not any(queue.knows(entry) for queue in self._of(lock_id)):
                engine.unregister(lock_id, effect.keys, entry.address)
            if effect.passed_on:
                _remember(self._contended_until, lock_id, clock.now() + engine.tuning.contention_memory)
            for queue in self._of(lock_id):
                if not effect.passed_on and not (queue.has_own_line and queue.enqueued_at):
                    queue.wake()
                elif queue.entry is None and queue.granted is None:  # its head sends a request, which registers it
                    queue.next_try = clock.now()
                    queue.notify_head()

    def wake(self, lock_id: LockId, number: str) -> bool:
        """Wake a queue that the store unregistered, because the lock may be free. Return False if it has no waiter."""
        with self._mutex:
            queue = self._by_number.get((lock_id, number))
            if queue is None or queue.head() is None or queue.loop_closed():
                return False
            queue.entry = None
            queue.wake()
            return True

    def receive(self, lock_id: LockId, number: str, token: str, fence: int, engine: QueueEngine) -> None:
        """Record in a queue that the store granted the lock to it. If no queue expects the grant, the lock is freed,
        unless a request with its token has claimed it: then only the message is late."""
        with self._mutex:
            queue = self._by_number.get((lock_id, number))
            if queue is not None and queue.receive(token, fence, lock_id, engine):
                return
        engine.return_grant(lock_id, self._grant_keys.get(lock_id, ()), token, fence)

    def doubt_grants(self, lock_id: LockId) -> None:
        """Have the queues to which the store granted a lock send a request: the lock may have been released by force."""
        with self._mutex:
            for queue in self._of(lock_id):
                if queue.granted is not None:
                    queue.wake()

    def wake_all(self) -> None:
        """Wake all queues, because wake-ups may have been missed."""
        with self._mutex:
            for lock_id in list(self._queues):
                for queue in self._of(lock_id):
                    queue.wake()

    def withdraw_entries(self) -> list[tuple[LockId, tuple[str, ...], str]]:
        """Return the entries that the store may have of this process's queues: the lock, the keys of the command that
        unregisters them, and the address. The store can grant nothing to them once that command is sent."""
        with self._mutex:
            return [
                (lock_id, queue.keys, entry.address)
                for lock_id in list(self._queues)
                for queue in self._of(lock_id)
                if (entry := queue.withdraw_entry()) is not None
            ]

    def _of(self, lock_id: LockId) -> list[WaitQueue]:
        return list(self._queues.get(lock_id, {}).values())

    def wait(self, effect: Wait, engine: QueueEngine) -> Attempt | None:
        """Block the thread until the waiter may try to acquire. Return its attempt, or None if there is none before
        ``until``."""
        attempt = self.begin_wait(effect, engine)
        while type(attempt) is float:
            engine.may_block()
            waiter = effect.waiter
            queue: WaitQueue = waiter.queue
            if queue.entry is not None and queue.waiters[0] is waiter:  # the store may grant it the lock
                engine.wait_for_message(waiter.event, attempt, waiter.channel)
            else:
                waiter.event.wait(attempt)
            attempt = self.continue_wait(effect, engine)
        return attempt  # type: ignore[return-value]

    async def async_wait(self, effect: Wait, engine: QueueEngine) -> Attempt | None:
        """Suspend the task until the waiter may try to acquire. Return its attempt, or None if there is none before
        ``until``."""
        attempt = self.begin_wait(effect, engine)
        while type(attempt) is float:
            await effect.waiter.event.wait(attempt)
            attempt = self.continue_wait(effect, engine)
        return attempt  # type: ignore[return-value]

    def begin_wait(self, effect: Wait, engine: QueueEngine) -> Attempt | float | None:
        """Begin a wait. Returns as ``WaitQueue.attempt``."""
        waiter, pause, position = effect.waiter, effect.pause, effect.position
        with self._mutex:
            if (
                waiter.queue is None or waiter not in waiter.queue.waiters
            ):  # an exception may have interrupted the call that added it
                self._enqueue(waiter, engine)
            queue: WaitQueue = waiter.queue
            if position is not None:
                queue.record_reply(waiter, position)
            if pause is not None:
                spread = random() * engine.tuning.max_jitter if pause else 0.0  # noqa: S311 - no secret
                queue.next_try = clock.now() + pause + spread
            return queue.attempt(waiter, effect.until, engine)

    def continue_wait(self, effect: Wait, engine: QueueEngine) -> Attempt | float | None:
        """Continue a wait after a sleep. Returns as ``WaitQueue.attempt``."""
        with self._mutex:
            queue: WaitQueue = effect.waiter.queue
            return queue.attempt(effect.waiter, effect.until, engine)

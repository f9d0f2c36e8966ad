"""The local wait queues: turns, wake-ups, deadlines, hand-overs, and what the last waiter reports for cleanup."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import HandOver, Requeue, Wait
from django_redis_locks.core.hold import State
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.queue_values import Attempt, QueuePosition, Waiter
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.engine import local_queues
from django_redis_locks.testing import ManualClock
from tests.unit.core.holds import LEASE
from tests.unit.engine.queue_fixtures import (
    LOCK_ID,
    NEVER,
    NOT_QUEUED,
    OTHER_LOCK_ID,
    SOON,
    TERMS,
    StandaloneQueues,
    address_of,
    handed_over_lock,
)


def terms(attempt: Attempt) -> tuple[Any, ...]:
    """What a request of an attempt says."""
    return attempt.address, attempt.enqueued_at, attempt.others_behind, attempt.handed


# Turns


def test_turns_follow_the_order_of_arrival(queues: StandaloneQueues) -> None:
    """[L27] First come, first served; a waiter that leaves from the middle changes nothing for the others."""
    waiters = [queues.join() for _ in range(4)]
    queues.leave_queue(waiters.pop(1))
    for waiter in waiters:
        behind = waiters[waiters.index(waiter) + 1 :]
        assert [queues.wait_for_turn(other, clock.now() - 1) for other in (waiter, *behind)] == [
            True,
            *(False for _ in behind),
        ]
        queues.leave_queue(waiter)


def test_head_is_woken_by_a_release_and_a_wake_up_of_its_own(queues: StandaloneQueues) -> None:
    """[H9] [H10] [H12] [L19] And by a lost connection; threads and tasks each have a head. Wake-ups for another key or
    another queue number wake none of them. A waiter behind the head is only woken when the head leaves."""
    loop = asyncio.new_event_loop()
    head, behind, task = queues.join_and_attempt(), queues.join(), queues.join_and_attempt(loop)
    queues.begin_sleep(behind)
    queues.begin_sleep(task)
    for wake, expected in (
        (lambda: queues.notify_release(OTHER_LOCK_ID), (False, False)),
        (queues.notify_release, (True, True)),
        (lambda: queues.wake(LOCK_ID, head.queue.number), (True, False)),
        (lambda: queues.wake(LOCK_ID, task.queue.number), (False, True)),
        (lambda: queues.wake(OTHER_LOCK_ID, head.queue.number), (False, False)),
        (lambda: queues.wake(LOCK_ID, "0"), (False, False)),
        (queues.wake_all, (True, True)),
    ):
        queues.begin_sleep(head)
        before = task.queue.wakeups
        wake()
        assert (queues.is_woken(head), task.queue.wakeups > before) == expected
        assert not queues.is_woken(behind)
    queues.leave_queue(head, 0.0)
    assert queues.is_woken(behind)
    loop.close()


def test_head_attempts_after_wake_up_pause_or_deadline(queues: StandaloneQueues) -> None:
    """[L24] [L30] The wake-up is only a hint: the pause ends every sleep, and there is a turn exactly at the deadline.
    [H8] [L23] A wake-up between the attempt and the sleep isn't lost, and causes one attempt."""
    waiter = queues.join()
    queues.notify_release()
    assert queues.timed_wait(waiter) == (True, 0), "the first attempt consumes earlier wake-ups"
    assert queues.timed_wait(waiter, pause=SOON) == (True, SOON)
    assert queues.timed_wait(waiter, clock.now() + SOON, 60) == (True, SOON)
    queues.notify_release()
    queues.notify_release()
    assert queues.timed_wait(waiter, pause=60) == (True, 0)
    assert queues.timed_wait(waiter, pause=SOON) == (True, SOON)


def test_next_head_inherits_the_time_of_the_next_attempt(queues: StandaloneQueues) -> None:
    """[H12] A new head doesn't repeat the attempt that was just answered; after an acquire it waits for the release."""
    for pause in (None, 2 * SOON):
        first, second = queues.join_and_attempt(), queues.join()
        assert queues.timed_wait(first, clock.now() + SOON, SOON) == (True, SOON)
        queues.begin_sleep(first, SOON)
        queues.leave_queue(first, pause)
        assert queues.timed_wait(second) == (True, pause or SOON)
        queues.leave_queue(second)


def test_waiter_behind_the_head_ends_without_a_turn(queues: StandaloneQueues) -> None:
    """[H22] Each waiter has its own deadline; [L30] only the head makes a last attempt at its deadline."""
    first, second = queues.join_and_attempt(), queues.join()
    assert queues.timed_wait(second, clock.now() + SOON) == (False, SOON)
    queues.leave_queue(first, 60)
    assert queues.wait_for_turn(second, clock.now() - 1) is True


def test_key_without_waiters_is_forgotten(queues: StandaloneQueues) -> None:
    """However many keys a process locks. Leaving twice has the effect of leaving once."""
    waiters = [queues.join(), queues.join(), queues.join(lock_id=OTHER_LOCK_ID)]
    for waiter in waiters * 2:
        queues.leave_queue(waiter)
    queues.leave_queue(Waiter(LOCK_ID, None, "inbox:"))  # it never joined
    assert queues._queues == {}
    for number in range(3 * local_queues.MAX_REMEMBERED_KEYS):
        lock_id = LockId("store", f"lock:{number}")
        queues.leave_queue(queues.join(lock_id=lock_id))
        queues.notify_release(lock_id, passed_on=True)
    assert 0 < len(queues._contended_until) <= local_queues.MAX_REMEMBERED_KEYS
    assert queues._queues == {}


def test_cancelled_task_cancels_its_timer(queues: StandaloneQueues) -> None:
    """No timer is left for a waiter that has left."""
    cancelled: list[bool] = []
    queues.engine.call_at = lambda at, callback: lambda: cancelled.append(True)  # type: ignore[method-assign]

    async def main() -> None:
        waiter = queues.join_and_attempt(asyncio.get_running_loop())
        task = asyncio.create_task(queues.async_wait(Wait(waiter, NEVER, 60), queues.engine))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cancelled == [True]


# Uncontended keys


def uncontended(queues: StandaloneQueues, lock_id: LockId = LOCK_ID) -> bool:
    """Whether the key was uncontended; no attempt is made."""
    waiter = Waiter(lock_id, None, "inbox:")
    return queues.uncontended(waiter) and queues.end_uncontended(lock_id, None) is waiter


def test_key_is_uncontended_without_waiters_now_and_lately(queues: StandaloneQueues, virtual_time: ManualClock) -> None:
    """[H4] [H12] An attempt then needs no queue. A process that was just woken has priority, so the key is
    contended."""
    assert uncontended(queues)
    waiter = queues.join()
    assert (uncontended(queues), uncontended(queues, OTHER_LOCK_ID)) == (False, True)
    queues.leave_queue(waiter)
    virtual_time.advance(DEFAULT.contention_memory / 2)
    assert not uncontended(queues), "a waiter left a moment ago"
    virtual_time.advance(DEFAULT.contention_memory)
    assert uncontended(queues)
    queues.notify_release(passed_on=True)
    assert not uncontended(queues), "another process was woken"
    queues.notify_release(OTHER_LOCK_ID)
    assert uncontended(queues, OTHER_LOCK_ID), "no process was woken"


def test_uncontended_attempt_fails_while_another_one_ends_the_same_entry(queues: StandaloneQueues) -> None:
    """[L16] Callers that begin at the same moment replace each other's entry, and remove it without the mutex."""

    class Shared(dict[LockId, Waiter]):
        def get(self, *key: Any) -> Any:
            found = super().get(*key)
            self.clear()
            return found

    queues._first_waiters = Shared()
    queues.end_uncontended = queues._first_waiters.pop
    first = Waiter(LOCK_ID, None, "inbox:")
    assert queues.uncontended(first)
    queues.leave_queue(first, 0, None)
    assert uncontended(queues)


def test_uncontended_attempt_is_the_head_of_later_waiters(queues: StandaloneQueues) -> None:
    """[H12] Of many simultaneous callers one makes an attempt and is the head of the later ones; a loop doesn't wait
    for a thread's attempt. [H9] [L16] An abandoned attempt leaves the key uncontended, or gives the next waiter its
    turn."""
    first, late = Waiter(LOCK_ID, None, "inbox:"), Waiter(LOCK_ID, None, "inbox:")
    for end in (lambda: queues.end_uncontended(LOCK_ID, None), lambda: queues.leave_queue(first, 0, None)):
        assert queues.uncontended(first)
        assert not queues.uncontended(late), "an attempt is under way"
        end()
        assert uncontended(queues)
    assert queues.uncontended(first)
    loop = asyncio.new_event_loop()
    queues.leave_queue(queues.join_and_attempt(loop))
    loop.close()
    queues.begin_sleep(late, None)
    assert queues.end_uncontended(LOCK_ID, None) is None
    assert isinstance(queues.begin_wait(Wait(first, NEVER), queues.engine), Attempt)
    queues.leave_queue(first, None, None)
    assert isinstance(queues.continue_wait(Wait(late, NEVER), queues.engine), Attempt)
    queues.leave_queue(late)
    assert queues._queues == {}


# After a release


def test_waiter_registers_when_a_release_grants_the_lock_to_another_process(
    queues: StandaloneQueues, virtual_time: ManualClock
) -> None:
    """[H4] [H9] A queue that is registered already waits for its grant."""
    for process_name, position, expected in (("", NOT_QUEUED, 0), ("me", QueuePosition(7), 60)):
        queues = StandaloneQueues()
        queues.engine.process_name = process_name
        waiter = queues.join_and_attempt()
        queues.wait_for_turn(waiter, clock.now() - 1, 60, position)
        queues.notify_release(passed_on=True)
        assert queues.timed_wait(waiter) == (True, expected), process_name


# Hand-overs


def test_handover_needs_a_waiter_in_the_same_loop(queues: StandaloneQueues) -> None:
    """[H3] [H12] And for the same lock: a thread hands nothing over to the tasks of a loop, which may be busy."""
    handed, loop = handed_over_lock(), asyncio.new_event_loop()
    waiters = queues.join(lock_id=OTHER_LOCK_ID), queues.join(loop)
    assert not queues.hand_over(HandOver(handed, None))
    assert not queues.hand_over(HandOver(handed, object()))
    assert queues.hand_over(HandOver(handed, loop))
    for waiter in (*waiters, queues.join()):
        queues.leave_queue(waiter)
    assert not queues.hand_over(HandOver(handed, None)), "it has left"
    loop.close()


def test_handed_over_lock_stays_with_the_queue_until_an_attempt_is_answered(queues: StandaloneQueues) -> None:
    """[H3] [H8] [H15] A hand-over wakes the head; the last token is the one in the store. If the head leaves, the next
    head gets the lock (doubtful after an attempt without reply); without a next head it is cleaned up."""
    first, second, third = (
        queues.begin_sleep(queues.join_and_attempt(), 60, QueuePosition(7)),
        queues.join(),
        queues.join(),
    )
    given = queues.hand_over_lock()
    assert given.hold.state is State.GONE
    assert queues.is_woken(first)
    handed = queues.hand_over_lock()
    assert terms(queues.attempt_now(first, QueuePosition(7))) == (address_of(first), 7, True, handed)
    assert not handed.adoption_unanswered
    queues.leave_queue(second, None, None)  # from the middle
    queues.leave_queue(first, 60, None)
    assert (handed.adoption_unanswered, given.adoption_unanswered) == (True, False)
    queues.hand_over_lock()
    assert queues.timed_wait(third) == (True, 0)
    assert queues.attempt_now(third, NOT_QUEUED).handed is None
    assert queues.leftovers == []
    last = queues.hand_over_lock()
    queues.leave_queue(third, 0.0, NOT_QUEUED)
    assert queues.leftovers == [(LOCK_ID, "", last)]
    assert not last.adoption_unanswered


def test_waiter_takes_over_with_a_reserved_fence_unless_the_store_must_be_asked(queues: StandaloneQueues) -> None:
    """[H3] The result equals that of the store: a fence of its own and the requested lease. The store must have
    confirmed the lock recently, without a message since, and the previous holder must have released it."""
    for what in ("", "no fence", "no lease", "another lease", "an extension", "time", "the deadline", "state", "news"):
        waiter = queues.join(lease=0 if what == "no lease" else LEASE + (what == "another lease"))
        handed = queues.hand_over_lock(reserved_fences=0 if what == "no fence" else 3)
        hold = handed.hold
        match what:
            case "an extension":
                hold.extend_deadline(clock.now(), 2 * LEASE)
            case "time":
                hold.confirmed_at = clock.now() - DEFAULT.local_reuse_window
            case "the deadline":
                hold.deadline = clock.now()
            case "news":
                queues.notify_release()
            case "state":
                hold.state = State.RELEASING
        attempt = queues.attempt_now(waiter)
        assert (attempt.adopted if what == "" else attempt.handed) is handed, what
        queues.leave_queue(waiter)


def test_waiter_that_fails_after_taking_over_gives_the_lock_back(queues: StandaloneQueues) -> None:
    """[H3] It may have entered, so the next waiter asks the store. If the take-over was confirmed, the caller cleans
    up."""
    for confirmed in (True, False):
        first, second = queues.join(), queues.join()
        handed = queues.hand_over_lock(reserved_fences=3)
        assert queues.attempt_now(first).adopted is handed
        if confirmed:
            queues.leave_queue(first, 0.0)
        for _ in range(2):
            queues.leave_queue(first, 0.0, None)
            assert first.gave_back is not confirmed
            assert queues.attempt_now(second).handed is (None if confirmed else handed)
        assert not handed.adoption_unanswered
        queues.leave_queue(second)


# The registration in the store's wait queue


def test_registration_belongs_to_the_queue_and_not_to_its_head(queues: StandaloneQueues) -> None:
    """[H4] [H7] [H9] Each head uses the arrival time of the first until the store removes the queue. No address is sent
    without a subscription, and a queue that used up its share of hand-overs gets a new arrival time."""
    first, second = queues.join_and_attempt(), queues.join()
    assert terms(queues.attempt_now(first, QueuePosition(7))) == (address_of(first), 7, True, None)
    queues.leave_queue(first, 0.0, QueuePosition(7, other_queues=True))
    queues.engine.process_name = ""
    assert terms(queues.attempt_now(second)) == ("", 7, False, None)
    assert queues.requeue(Requeue(LOCK_ID, None), queues.engine) is None
    queues.engine.process_name = "me"
    assert terms(queues.attempt_now(second, NOT_QUEUED)) == (address_of(second), 7, False, None)
    second.terms = TERMS
    entry = queues.requeue(Requeue(LOCK_ID, None), queues.engine)
    assert entry is not None
    assert entry.address == address_of(second)
    assert queues.attempt_now(second).enqueued_at == 0
    for lock_id, loop in ((OTHER_LOCK_ID, None), (LOCK_ID, asyncio)):
        assert queues.requeue(Requeue(lock_id, loop), queues.engine) is None
    queues.leave_queue(second)
    other = queues.join_and_attempt()
    assert other.queue.number != second.queue.number, "the cleanup of the earlier queue's registration comes later"


def test_last_waiter_that_leaves_reports_registration_and_unused_wake_up(queues: StandaloneQueues) -> None:
    """[H8] [H9] [L29] For cleanup: a possible registration, and a wake-up that no answered attempt has used. Leaving
    twice reports once."""
    for asked, woken, again, position, left in (
        (False, False, False, None, []),
        (True, False, False, NOT_QUEUED, []),
        (True, False, False, None, ["its own"]),
        (True, False, False, QueuePosition(7), ["its own"]),
        (True, True, False, None, [""]),
        (True, True, False, NOT_QUEUED, [""]),
        (True, True, True, NOT_QUEUED, []),
        (True, True, True, None, ["its own"]),
    ):
        waiter, other = queues.join_and_attempt() if asked else queues.join(), queues.join()
        if woken:
            assert queues.wake(LOCK_ID, waiter.queue.number)
        if again:
            queues.attempt_now(waiter, QueuePosition(7))
        queues.leave_queue(other, None, None)
        assert queues.leftovers == []
        queues.leave_queue(waiter, None, position)
        queues.leave_queue(waiter, None, None)
        assert queues.leftovers == [(LOCK_ID, where and address_of(waiter), None) for where in left]
        assert not queues.wake(LOCK_ID, waiter.queue.number), "the sender passes it on"
        queues.leftovers.clear()


def test_wake_up_of_a_head_that_leaves_goes_to_the_next(queues: StandaloneQueues) -> None:
    """[H8] [L29] The next head attempts at once, without the pause."""
    first, second = queues.join_and_attempt(), queues.join()
    queues.wake(LOCK_ID, first.queue.number)
    queues.leave_queue(first, 60, QueuePosition(7))
    assert queues.timed_wait(second) == (True, 0)
    assert queues.leftovers == []


def test_registration_of_a_queue_without_waiters_is_cleaned_up(queues: StandaloneQueues) -> None:
    """[H4] [H9] Its last waiter left before the release that requeued it was executed."""
    waiter = queues.join()
    waiter.terms = TERMS
    entry = queues.requeue(Requeue(LOCK_ID, None), queues.engine)
    assert entry is not None
    queues.notify_release(passed_on=True, entry=entry)
    assert queues.leftovers == [], "the queue has a waiter"
    queues.leave_queue(waiter)
    queues.join()  # in a queue with another number
    queues.notify_release(passed_on=True, entry=entry)
    queues.notify_release(passed_on=True)
    assert queues.leftovers == [(LOCK_ID, entry.address, None)] * 2
    entry.used = True  # a waiter has got the lock with it
    queues.notify_release(passed_on=True, entry=entry)
    assert len(queues.leftovers) == 2


def test_queue_of_a_closed_loop_is_cleaned_up(queues: StandaloneQueues) -> None:
    """[L25] [H3] [H9] [H12] Its tasks will never leave, and no wake-up reaches them: the next waiter that joins or
    leaves reports what they had for cleanup, once."""
    for asked, handing, leaving in (
        (True, False, False),
        (True, True, False),
        (True, False, True),
        (False, False, True),
    ):
        mine = queues.join() if leaving else None
        waiter = queues.waiter_of_closed_loop(asked=asked)
        handed = queues.hand_over_lock(waiter.loop) if handing else None
        assert not queues.wake(LOCK_ID, waiter.queue.number)
        if mine is not None:
            queues.leave_queue(mine, 0.0)
        else:
            mine = queues.join()
            queues.join(mine.loop)
        assert queues.leftovers == [(LOCK_ID, address_of(waiter), handed)] * asked
        assert waiter.loop not in queues._queues.get(LOCK_ID, {})
        queues.leftovers.clear()
        queues._queues.clear()


def test_loop_that_stopped_with_waiters_is_not_kept(queues: StandaloneQueues, virtual_time: ManualClock) -> None:
    """[L25] It was dropped without being closed. If it is run again, its waiter goes on, and receives messages."""

    class Loop(asyncio.AbstractEventLoop):
        running = True

        def is_running(self) -> bool:
            return self.running

        def is_closed(self) -> bool:
            return False

    dropped, stopped, running = Loop(), Loop(), Loop()
    for loop in dropped, stopped, running:
        waiter = queues.begin_sleep(queues.join_and_attempt(loop), 1, QueuePosition(7))
        loop.running = loop is running
    collected = weakref.ref(dropped)
    virtual_time.advance(1 + DEFAULT.max_poll_interval)
    queues.join(None)
    assert set(queues._queues[LOCK_ID]) == {dropped, stopped, running, None}, "a timer may be that late"
    virtual_time.advance(0.1)
    del dropped, loop, waiter
    gc.collect()
    (back,) = (queue.waiters[0] for line, queue in queues._queues[LOCK_ID].items() if line is stopped)
    queues.leave_queue(queues.join(Loop()))
    assert set(queues._queues[LOCK_ID]) == {running, None}
    gc.collect()
    assert collected() is None
    assert queues.wake(LOCK_ID, back.queue.number)
    assert isinstance(queues.continue_wait(Wait(back, NEVER), queues.engine), Attempt)
    queues.leave_queue(back)
    assert queues.leftovers == []

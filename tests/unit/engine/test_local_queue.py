"""Who waits for what in this process: turns, wake-ups that are never lost, deadlines, and what the last one leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import HandOver, Requeue, Wait
from django_redis_locks.core.hold import State
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.queue_values import Attempt, QueuePosition, Waiter
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.engine import local_queue as queues
from django_redis_locks.testing import ManualClock
from tests.unit.core.holds import LEASE
from tests.unit.engine.queue_fixtures import NEVER, NOWHERE, OTHER, PLACE, SOON, Line, address, handed_over_lock

# Turns


def test_turns_follow_the_order_of_arrival(line: Line) -> None:
    """[L27] First come, first served; who leaves from the middle changes nothing for the others."""
    waiters = [line.sit() for _ in range(4)]
    line.stand(waiters.pop(1))
    for waiter in waiters:
        behind = waiters[waiters.index(waiter) + 1 :]
        assert [line.attempt(other, clock.now() - 1) for other in (waiter, *behind)] == [True, *(False for _ in behind)]
        line.stand(waiter)


def test_head_is_woken_by_a_release_and_a_wake_up_of_its_own(line: Line) -> None:
    """[H9] [H10] [H12] [L19] And by a lost connection; threads and tasks each have a head. Another key's news, and another
    queue's number, wake none of them; nor is anybody woken who isn't head, until the head leaves."""
    loop = asyncio.new_event_loop()
    head, behind, task = line.asked(), line.sit(), line.asked(loop)
    line.asleep(behind)
    line.asleep(task)
    for wake, expected in (
        (lambda: line.free(OTHER), (False, False)),
        (line.free, (True, True)),
        (lambda: line.wake(PLACE, head.queue.number), (True, False)),
        (lambda: line.wake(PLACE, task.queue.number), (False, True)),
        (lambda: line.wake(OTHER, head.queue.number), (False, False)),
        (lambda: line.wake(PLACE, "0"), (False, False)),
        (line.wake_all, (True, True)),
    ):
        line.asleep(head)
        before = task.queue.wakeups
        wake()
        assert (line.woken(head), task.queue.wakeups > before) == expected
        assert not line.woken(behind)
    line.stand(head, 0.0)
    assert line.woken(behind)
    loop.close()


def test_turn_of_the_head_comes_at_its_time(line: Line) -> None:
    """[L24] [L30] The wake-up is only a hint: the pause ends every sleep, and there is a turn at the deadline, not before
    and not later. [H8] [L23] A wake-up between the question and the sleep isn't lost, and is good for one attempt."""
    waiter = line.sit()
    line.free()
    assert line.timed(waiter) == (True, 0), "the first turn uses what came before it"
    assert line.timed(waiter, pause=SOON) == (True, SOON)
    assert line.timed(waiter, clock.now() + SOON, 60) == (True, SOON)
    line.free()
    line.free()
    assert line.timed(waiter, pause=60) == (True, 0)
    assert line.timed(waiter, pause=SOON) == (True, SOON)


def test_next_head_inherits_the_time_of_the_next_attempt(line: Line) -> None:
    """[H12] A new head doesn't ask what the last one has just heard; who got the lock has it wait for the release."""
    for pause in (None, 2 * SOON):
        first, second = line.asked(), line.sit()
        assert line.timed(first, clock.now() + SOON, SOON) == (True, SOON)
        line.asleep(first, SOON)
        line.stand(first, pause)
        assert line.timed(second) == (True, pause or SOON)
        line.stand(second)


def test_waiter_behind_the_head_ends_without_a_turn(line: Line) -> None:
    """[H22] Its deadline is its own; [L30] the right to a last try comes with the head's place."""
    first, second = line.asked(), line.sit()
    assert line.timed(second, clock.now() + SOON) == (False, SOON)
    line.stand(first, 60)
    assert line.attempt(second, clock.now() - 1) is True


def test_key_without_waiters_is_forgotten(line: Line) -> None:
    """However many it locks; leaving twice is leaving once, also for the next one."""
    waiters = [line.sit(), line.sit(), line.sit(lock_id=OTHER)]
    for waiter in waiters * 2:
        line.stand(waiter)
    line.stand(Waiter(PLACE, None, "inbox:"))  # one that never joined
    assert line._queues == {}
    for number in range(3 * queues.MAX_REMEMBERED_KEYS):
        lock_id = LockId("store", f"lock:{number}")
        line.stand(line.sit(lock_id=lock_id))
        line.free(lock_id, woke=True)
    assert 0 < len(line._contended_until) <= queues.MAX_REMEMBERED_KEYS
    assert 0 < len(line._yield_until) <= queues.MAX_REMEMBERED_KEYS
    assert line._queues == {}


def test_cancelled_task_cancels_its_alarm(line: Line) -> None:
    """Nothing rings for somebody who isn't there any more."""
    taken_back: list[bool] = []
    line.outside.call_at = lambda at, ring: lambda: taken_back.append(True)  # type: ignore[method-assign]

    async def main() -> None:
        waiter = line.asked(asyncio.get_running_loop())
        task = asyncio.create_task(line.async_wait(Wait(waiter, NEVER, 60), line.outside))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert taken_back == [True]


# Where all is calm


def uncontended(line: Line, lock_id: LockId = PLACE) -> bool:
    """Whether it was; nobody asks."""
    waiter = Waiter(lock_id, None, "inbox:")
    return line.uncontended(waiter) and line.end_uncontended(waiter)


def test_key_is_uncontended_without_waiters_now_and_lately(line: Line, virtual_time: ManualClock) -> None:
    """[H4] [H12] Whoever comes then needn't queue up to ask. One who was told to go first is not overtaken either."""
    assert uncontended(line)
    waiter = line.sit()
    assert (uncontended(line), uncontended(line, OTHER)) == (False, True)
    line.stand(waiter)
    virtual_time.advance(DEFAULT.contention_memory / 2)
    assert not uncontended(line), "somebody did lately"
    virtual_time.advance(DEFAULT.contention_memory)
    assert uncontended(line)
    line.free(woke=True)
    assert not uncontended(line), "somebody of another process does"
    line.free(OTHER)
    assert uncontended(line, OTHER), "nobody was told"


def test_uncontended_attempt_is_the_head_of_later_waiters(line: Line) -> None:
    """[H12] Of a crowd that comes at once one asks, and is the head of those who came while he did; a loop doesn't wait for
    a thread's answer. [H9] [L16] Given up, it leaves the key uncontended, unless others came: then it is their turn."""
    first, late = Waiter(PLACE, None, "inbox:"), Waiter(PLACE, None, "inbox:")
    for end in (lambda: line.end_uncontended(first), lambda: line.stand(first, 0, None)):
        assert line.uncontended(first)
        assert not line.uncontended(late), "he is asking"
        end()
        assert uncontended(line)
    assert line.uncontended(first)
    loop = asyncio.new_event_loop()
    line.stand(line.asked(loop))
    loop.close()
    line.asleep(late, None)
    assert not line.end_uncontended(first)
    assert isinstance(line.begin_wait(Wait(first, NEVER), line.outside), Attempt)
    line.stand(first, None, None)
    assert isinstance(line.continue_wait(Wait(late, NEVER), line.outside), Attempt)
    line.stand(late)
    assert line._queues == {}


# After a release


def test_waiter_yields_to_the_process_that_was_woken(line: Line, virtual_time: ManualClock) -> None:
    """[H4] [H12] It needs a message and a round trip, and would always lose. A try that is due keeps its time, and who is in
    the store's line waits for the store."""
    polite = DEFAULT.yield_time
    line.free(woke=True)
    line.free(OTHER)
    waiter = line.sit()
    assert line.timed(waiter) == (True, polite)
    line.stand(waiter)
    for me, pause, position, expected in (
        ("", 60, NOWHERE, polite),
        ("", 0, NOWHERE, 0),
        ("me", 2 * polite, QueuePosition(7), 2 * polite),
    ):
        line = Line()
        line.outside.me = me
        waiter = line.asked()
        line.attempt(waiter, clock.now() - 1, pause, position)
        line.free(woke=True)
        assert line.timed(waiter) == (True, expected), me


# Hand-overs


def test_handover_needs_a_waiter_in_the_same_home(line: Line) -> None:
    """[H3] [H12] For this very lock; a busy loop's tasks are no heirs of a thread."""
    handed, loop = handed_over_lock(), asyncio.new_event_loop()
    waiters = line.sit(lock_id=OTHER), line.sit(loop)
    assert not line.hand_over(HandOver(handed, None))
    assert not line.hand_over(HandOver(handed, object()))
    assert line.hand_over(HandOver(handed, loop))
    for waiter in (*waiters, line.sit()):
        line.stand(waiter)
    assert not line.hand_over(HandOver(handed, None)), "he has left"
    loop.close()


def test_handover_is_the_queues_until_an_attempt_is_answered(line: Line) -> None:
    """[H3] [H8] [H15] It wakes the head, however patient that was; the last token is the one in the store; the next head has
    it if this one leaves, in doubt if his attempt wasn't answered, and the janitor if there is none."""
    first, second, third = line.asleep(line.asked(), 60, QueuePosition(7)), line.sit(), line.sit()
    given = line.pass_on()
    assert given.hold.state is State.GONE
    assert line.woken(first)
    handed = line.pass_on()
    assert line.ask(first, QueuePosition(7)) == Attempt(address(first), 7, True, handed)
    assert not handed.doubtful
    line.stand(second, None, None)  # from the middle
    line.stand(first, 60, None)
    assert (handed.doubtful, given.doubtful) == (True, False)
    line.pass_on()
    assert line.timed(third) == (True, 0)
    assert line.ask(third, NOWHERE).handed is None
    assert line.left == []
    last = line.pass_on()
    line.stand(third, 0.0, NOWHERE)
    assert line.left == [(PLACE, "", last)]
    assert not last.doubtful


def test_waiter_takes_over_with_a_reserved_fence_unless_the_store_must_be_asked(line: Line) -> None:
    """[H3] It gets what the store would give: a fence of its own, and the lease it asks for; the store was asked lately,
    without news since; and the previous holder is through with the lock."""
    for what in ("", "no fence", "no lease", "another lease", "an extension", "time", "the deadline", "state", "news"):
        waiter = line.sit(lease=0 if what == "no lease" else LEASE + (what == "another lease"))
        handed = line.pass_on(reserved_fences=0 if what == "no fence" else 3)
        hold = handed.hold
        match what:
            case "an extension":
                hold.extend_deadline(clock.now(), 2 * LEASE)
            case "time":
                hold.confirmed_at = clock.now() - DEFAULT.local_reuse_window
            case "the deadline":
                hold.deadline = clock.now()
            case "news":
                line.free()
            case "state":
                hold.state = State.RELEASING
        attempt = line.ask(waiter)
        assert (attempt.adopted if what == "" else attempt.handed) is handed, what
        line.stand(waiter)


def test_waiter_that_fails_after_taking_over_gives_the_lock_back(line: Line) -> None:
    """[H3] Whether he entered nobody knows: the next one asks the store. Confirmed, it is his to clear away."""
    for confirmed in (True, False):
        first, second = line.sit(), line.sit()
        handed = line.pass_on(reserved_fences=3)
        assert line.ask(first).adopted is handed
        if confirmed:
            line.stand(first, 0.0)
        for _ in range(2):
            line.stand(first, 0.0, None)
            assert first.gave_back is not confirmed
            assert line.ask(second).handed is (None if confirmed else handed)
        assert not handed.doubtful
        line.stand(second)


# The place in the store's line


def test_registration_belongs_to_the_queue_and_not_to_its_head(line: Line) -> None:
    """[H4] [H7] [H9] Whoever is head asks with the first arrival, until the store takes the queue out of the line; nothing is
    named while nobody listens, and a queue whose process had its share gives its arrival up."""
    first, second = line.asked(), line.sit()
    assert line.ask(first, QueuePosition(7)) == Attempt(address(first), 7, True, None)
    line.stand(first, 0.0, QueuePosition(7, others=True))
    line.outside.me = ""
    assert line.ask(second) == Attempt("", 7, False, None)
    assert line.requeue(Requeue(PLACE, None), line.outside) == address(second)
    line.outside.me = "me"
    assert line.ask(second, NOWHERE) == Attempt(address(second), 7, False, None)
    assert line.requeue(Requeue(PLACE, None), line.outside) == address(second)
    assert line.ask(second).enqueued_at == 0
    for lock_id, loop in ((OTHER, None), (PLACE, asyncio)):
        assert line.requeue(Requeue(lock_id, loop), line.outside) == ""
    line.stand(second)
    other = line.asked()
    assert other.queue.number != second.queue.number, "what an earlier queue left in the line is taken away later"


def test_last_waiter_leaves_what_counts_on_its_queue_to_the_janitor(line: Line) -> None:
    """[H8] [H9] [L29] A place in line, perhaps; a wake-up that no answered attempt has used. Twice is once."""
    for asked, woken, again, position, left in (
        (False, False, False, None, []),
        (True, False, False, NOWHERE, []),
        (True, False, False, None, ["its own"]),
        (True, False, False, QueuePosition(7), ["its own"]),
        (True, True, False, None, [""]),
        (True, True, False, NOWHERE, [""]),
        (True, True, True, NOWHERE, []),
        (True, True, True, None, ["its own"]),
    ):
        waiter, other = line.asked() if asked else line.sit(), line.sit()
        if woken:
            assert line.wake(PLACE, waiter.queue.number)
        if again:
            line.ask(waiter, QueuePosition(7))
        line.stand(other, None, None)
        assert line.left == []
        line.stand(waiter, None, position)
        line.stand(waiter, None, None)
        assert line.left == [(PLACE, where and address(waiter), None) for where in left]
        assert not line.wake(PLACE, waiter.queue.number), "whoever brings it passes it on"
        line.left.clear()


def test_wake_up_of_a_head_that_leaves_goes_to_the_next(line: Line) -> None:
    """[H8] [L29] It asks at once, although it was told to be patient."""
    first, second = line.asked(), line.sit()
    line.wake(PLACE, first.queue.number)
    line.stand(first, 60, QueuePosition(7))
    assert line.timed(second) == (True, 0)
    assert line.left == []


def test_registration_of_a_queue_without_waiters_goes_to_the_janitor(line: Line) -> None:
    """[H4] [H9] Its last one left before the release that lined it up was carried out."""
    waiter = line.sit()
    where = line.requeue(Requeue(PLACE, None), line.outside)
    line.free(woke=True, address=where)
    assert line.left == [], "somebody waits there"
    line.stand(waiter)
    line.sit()  # in a queue with another number
    line.free(woke=True, address=where)
    line.free(woke=True)
    assert line.left == [(PLACE, where, None)] * 2


def test_closed_loop_leaves_its_queue_to_the_janitor(line: Line) -> None:
    """[L25] [H3] [H9] [H12] None of its tasks will ever leave: no wake-up reaches them, and the next one who joins or leaves
    leaves what they had to the janitor, once."""
    for asked, handing, leaving in (
        (True, False, False),
        (True, True, False),
        (True, False, True),
        (False, False, True),
    ):
        mine = line.sit() if leaving else None
        waiter = line.closed(asked=asked)
        handed = line.pass_on(waiter.loop) if handing else None
        assert not line.wake(PLACE, waiter.queue.number)
        if mine is not None:
            line.stand(mine, 0.0)
        else:
            mine = line.sit()
            line.sit(mine.loop)
        assert line.left == [(PLACE, address(waiter), handed)] * asked
        assert waiter.loop not in line._queues.get(PLACE, {})
        line.left.clear()
        line._queues.clear()

"""Waiters with a line of their own: each has its own queue and its own entry in the store's wait queue."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import HandOver, Wait
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import LAST, Attempt, DirectGrant, QueuePosition, Waiter
from django_redis_locks.engine.wait_queue import WaitQueue
from tests.unit.engine.queue_fixtures import (
    LEASE,
    LOCK_ID,
    NEVER,
    NOT_QUEUED,
    TERMS,
    StandaloneQueues,
    address_of,
    handed_over_lock,
)

FENCE = 50
names = count(1)


def waiter_of(loop: object = None) -> Waiter:
    waiter = Waiter(LOCK_ID, loop, "inbox:", LEASE, own_line=f"line {next(names)}")
    waiter.terms = TERMS
    return waiter


def ask(queues: StandaloneQueues, waiter: Waiter, until: float = NEVER, position: QueuePosition | None = None) -> Entry:
    """Let a waiter send a request, at once."""
    attempt = queues.begin_wait(Wait(waiter, until, 0.0, position), queues.engine)
    assert isinstance(attempt, Attempt)
    assert attempt.entry is not None
    return attempt.entry


def register(queues: StandaloneQueues, waiter: Waiter, place: int) -> Entry:
    """Register a waiter in the store at a place in line; it sleeps."""
    entry = ask(queues, waiter)
    queues.begin_sleep(waiter, 60, QueuePosition(place, sent=clock.now(), fence=FENCE))
    return entry


def attempt_of(queues: StandaloneQueues, waiter: Waiter, until: float = NEVER) -> Attempt | float | None:
    return queues.continue_wait(Wait(waiter, until), queues.engine)


def grant(queues: StandaloneQueues, entry: Entry) -> None:
    queues.receive(LOCK_ID, entry.address.split(" ")[1], entry.token, FENCE + 1, queues.engine)


def test_each_waiter_is_registered_and_the_grant_reaches_exactly_it(queues: StandaloneQueues) -> None:
    """[L32] Threads and tasks alike: none waits for another one of its process."""
    loop = asyncio.new_event_loop()
    first, second, task = waiter_of(), waiter_of(), waiter_of(loop)
    entries = [register(queues, waiter, place) for place, waiter in enumerate((first, second, task), 1)]
    assert len({entry.token for entry in entries} | {entry.address.split(" ")[1] for entry in entries}) == 6
    grant(queues, entries[1])
    attempt = attempt_of(queues, second)
    assert isinstance(attempt, Attempt)
    assert isinstance(attempt.adopted, DirectGrant)
    assert attempt.adopted.token == entries[1].token
    assert isinstance(attempt_of(queues, first), float)
    assert not first.event._unset.acquire(blocking=False)  # it wasn't even woken
    queues.leave_queue(second)
    for waiter in (first, task):
        queues.leave_queue(waiter, None, None)
    assert len(queues) == 0
    assert {address for _, address, _ in queues.leftovers} == {entries[0].address, entries[2].address}
    loop.close()


def test_first_attempts_of_several_callers_need_no_queue(queues: StandaloneQueues) -> None:
    """Readers and permits don't exclude each other, so a caller needn't wait for the reply to another one."""
    first, second, shared = waiter_of(), waiter_of(), Waiter(LOCK_ID, None, "inbox:")
    assert queues.uncontended(first)
    assert queues.uncontended(second)
    assert queues.end_uncontended(LOCK_ID, None) is None
    assert queues.uncontended(shared)
    assert not queues.uncontended(first), "behind a waiter of a plain lock there may be a queue"
    queues.end_uncontended(LOCK_ID, None)
    register(queues, second, 1)
    assert not queues.uncontended(first), "a caller of this process waits"


def test_waiter_that_leaves_with_a_grant_has_it_freed(queues: StandaloneQueues) -> None:
    """[L29] [L32] It isn't given to another waiter of the process: the store knows the next one."""
    first, second = waiter_of(), waiter_of()
    entry = register(queues, first, 1)
    register(queues, second, 2)
    grant(queues, entry)
    queues.leave_queue(first, None, None)
    assert queues.leftovers == [(LOCK_ID, entry.address, None)]
    assert isinstance(attempt_of(queues, second), float)


def test_release_wakes_no_waiter_that_is_registered(queues: StandaloneQueues) -> None:
    """[L32] Whatever freed the lock has granted it to the first in line. A waiter that isn't registered asks."""
    registered, new, shared = waiter_of(), waiter_of(), queues.join()
    register(queues, registered, 1)
    queues.engine.process_name = ""  # without a subscription it can't be registered
    queues.begin_wait(Wait(new, NEVER, 0.0), queues.engine)
    queues.begin_sleep(new, 60, NOT_QUEUED)
    queues.engine.process_name = "me"
    for passed_on in (True, False):
        queues.notify_release(passed_on=passed_on)
        assert isinstance(attempt_of(queues, registered), float)
        assert queues.is_woken(new)
        queues.begin_sleep(new, 60, QueuePosition(0, sent=clock.now(), fence=FENCE))
    queues.leave_queue(shared)


def test_lock_is_never_handed_over_to_a_waiter_with_its_own_line(queues: StandaloneQueues) -> None:
    """[L32] Another caller may have waited longer elsewhere."""
    register(queues, waiter_of(), 1)
    assert not queues.hand_over(HandOver(handed_over_lock(), None))


def test_place_in_line_is_that_of_the_first_request(queues: StandaloneQueues) -> None:
    """[L32] [L33] Of the straight attempt, which registers nothing; and after any later registration."""
    waiter = waiter_of()
    assert queues.uncontended(waiter)
    place = QueuePosition(7, sent=clock.now(), fence=FENCE)
    attempt = queues.begin_wait(Wait(waiter, NEVER, None, place), queues.engine)
    assert isinstance(attempt, Attempt)
    assert attempt.enqueued_at == 7
    assert attempt.entry is not None
    queues.begin_sleep(waiter, 60, place)
    grant(queues, attempt.entry)
    adopting = attempt_of(queues, waiter)
    assert isinstance(adopting, Attempt)
    again = queues.begin_wait(Wait(waiter, NEVER, 0.0, NOT_QUEUED), queues.engine)  # its lease was over
    assert isinstance(again, Attempt)
    assert (again.enqueued_at, again.token == attempt.token) == (7, False)


def test_second_caller_does_not_wait_for_the_straight_attempt_of_the_first(queues: StandaloneQueues) -> None:
    """[H12] Nor does the first one join its queue."""
    first, second = waiter_of(), waiter_of()
    assert queues.uncontended(first)
    register(queues, second, 1)
    assert second.queue.waiters == [second]
    register(queues, first, 2)
    assert (first.queue.waiters, queues.end_uncontended(LOCK_ID, None)) == ([first], None)


def test_last_attempt_removes_the_waiter(queues: StandaloneQueues) -> None:
    """[L33] At the end of its wait, whoever else waits here."""
    leaving, staying = waiter_of(), waiter_of()
    for place, waiter in enumerate((leaving, staying), 1):
        register(queues, waiter, place)
    attempt = queues.begin_wait(Wait(leaving, clock.now(), 0.0), queues.engine)
    assert isinstance(attempt, Attempt)
    assert attempt.enqueued_at == LAST
    queues.leave_queue(leaving, None, QueuePosition(0, sent=clock.now(), fence=FENCE))
    assert queues.leftovers == []


@pytest.mark.parametrize("how", ["collected", "a closed loop"])
def test_abandoned_waiter_is_unregistered(queues: StandaloneQueues, how: str) -> None:
    """[L32] Its caller is gone without a word. The others stay in line."""
    loop = asyncio.new_event_loop()
    staying = waiter_of()
    register(queues, staying, 1)
    request = type("Request", (), {})()
    gone = Waiter(LOCK_ID, loop, "inbox:", LEASE, request, "gone")
    gone.terms = TERMS
    entry = register(queues, gone, 2)
    assert entry.address.startswith(address_of(gone))
    if how == "collected":
        del request
    loop.close()
    queues.leave_queue(waiter_of())  # has closed loops dropped
    assert [address for _, address, _ in queues.leftovers] == [entry.address]
    assert list(queues._queues[LOCK_ID]) == [staying.line]


def test_time_of_a_waiter_does_not_grow_with_the_number_of_the_others(
    queues: StandaloneQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is in the table of local queues, which is searched for closed loops."""
    checked = []
    monkeypatch.setattr(WaitQueue, "loop_closed", lambda queue: checked.append(queue) is not None)
    waiters = [waiter_of() for _ in range(500)]
    for waiter in waiters:
        ask(queues, waiter)
    for waiter in waiters:
        queues.leave_queue(waiter)
    assert len(checked) < 20 * len(waiters)


def test_message_finds_its_queue_without_a_look_at_the_others(
    queues: StandaloneQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wake-up, a grant, and a message for a waiter that has left."""
    entries = [register(queues, waiter_of(), place) for place in range(1, 51)]
    left = waiter_of()
    register(queues, left, 51)
    queues.leave_queue(left, None, None)
    read = []
    number = property(lambda queue: read.append(queue) or queue.__dict__["number"])
    monkeypatch.setattr(WaitQueue, "number", number, raising=False)
    grant(queues, entries[20])
    assert queues.wake(LOCK_ID, entries[30].address.split(" ")[1])
    assert not queues.wake(LOCK_ID, address_of(left).split(" ")[1])
    assert len(read) < 10
    assert queues.engine.returned_grants == []


def test_entries_that_are_withdrawn_get_no_lock(queues: StandaloneQueues) -> None:
    """[L7] [L32] Not those of a waiter that expects a reply or adopts the lock: it may hold the lock with the token."""
    sleeping, granted, asking, adopting = waiters = [waiter_of() for _ in range(4)]
    entries = {
        waiter: ask(queues, waiter) if waiter is asking else register(queues, waiter, place)
        for place, waiter in enumerate(waiters, 1)
    }
    for waiter in adopting, granted:
        grant(queues, entries[waiter])
    assert isinstance(attempt_of(queues, adopting), Attempt)
    assert queues.withdraw_entries() == [
        (LOCK_ID, TERMS.keys, entries[waiter].address) for waiter in (sleeping, granted)
    ]
    grant(queues, entries[sleeping])  # a late message
    for waiter in sleeping, granted:
        attempt = attempt_of(queues, waiter)
        assert isinstance(attempt, Attempt)
        assert attempt.adopted is None
        assert attempt.token != entries[waiter].token

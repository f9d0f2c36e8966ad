"""A lock that the store grants to a local queue: who adopts it, and what frees it otherwise."""

from __future__ import annotations

import asyncio

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import Requeue, Wait
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import LAST, Attempt, DirectGrant, QueuePosition, Waiter
from django_redis_locks.testing import ManualClock
from tests.unit.engine.queue_fixtures import LOCK_ID, NEVER, NOT_QUEUED, TERMS, StandaloneQueues

FENCE = 50
"""The fence of the holder for which the queue waits."""


@pytest.fixture
def queues(queues: StandaloneQueues, virtual_time: ManualClock) -> StandaloneQueues:
    return queues


def queued(fence: int = FENCE) -> QueuePosition:
    """The reply to a request that has just registered the queue."""
    return QueuePosition(7, sent=clock.now(), fence=fence)


def join(queues: StandaloneQueues, lease: int = 10_000, loop: object = None) -> Waiter:
    waiter = queues.join(loop, lease=lease)
    waiter.terms = TERMS
    return waiter


def ask(queues: StandaloneQueues, waiter: Waiter, until: float = NEVER) -> Attempt:
    """Let the head of a queue make an attempt."""
    attempt = queues.begin_wait(Wait(waiter, until, 0.0), queues.engine)
    assert isinstance(attempt, Attempt)
    return attempt


def register(queues: StandaloneQueues, waiter: Waiter) -> Entry:
    """Let the head of a queue register it, and sleep."""
    entry = ask(queues, waiter).entry
    assert entry is not None
    queues.begin_sleep(waiter, 60, queued())
    return entry


def grant(queues: StandaloneQueues, entry: Entry, fence: int = FENCE + 1) -> None:
    """The message that the store has granted the lock to an entry."""
    queues.receive(LOCK_ID, entry.address.split(" ")[1], entry.token, fence, queues.engine)


def attempt_of(queues: StandaloneQueues, waiter: Waiter) -> Attempt | float | None:
    return queues.continue_wait(Wait(waiter, NEVER), queues.engine)


def test_head_adopts_a_granted_lock_without_a_request(queues: StandaloneQueues) -> None:
    """[H9] The message wakes the head; a late copy of it changes nothing. The queue registers next time as a new one."""
    first, second = join(queues), join(queues)
    entry = register(queues, first)
    assert entry.address.split(" ")[2:] == [entry.token, "3000", '["here",1]']
    grant(queues, entry)
    assert queues.is_woken(first)
    attempt = attempt_of(queues, first)
    assert isinstance(attempt, Attempt)
    assert isinstance(attempt.adopted, DirectGrant)
    assert (attempt.adopted.token, attempt.adopted.fence, attempt.entry) == (entry.token, FENCE + 1, None)
    queues.leave_queue(first, 0.0, NOT_QUEUED)
    assert entry.used
    assert first.attempt is None  # it and the grant would refer to each other
    asked = ask(queues, second)
    assert (asked.enqueued_at, asked.token == entry.token) == (0, False)
    queues.leave_queue(second)
    assert queues.leftovers == []


@pytest.mark.parametrize(
    ("why", "lease"),
    [
        ("late", 10_000),
        ("a shorter lease", TERMS.lease - 1),
        ("kept until its lease ends", 0),
        ("a forced release", 10_000),
        ("a lost connection", 10_000),
        ("a local hand-over", 10_000),
        ("only a local hand-over", 10_000),
    ],
)
def test_head_asks_the_store_about_a_grant_that_it_cannot_rely_on(
    queues: StandaloneQueues, virtual_time: ManualClock, why: str, lease: int
) -> None:
    """[H3] [H14] With the token of the grant, so that the store confirms it. Its lease counts from the last request: two
    thirds of it must be left. A request with a lock that was handed over removes the entry, so that the store doesn't
    grant the lock to it later."""
    waiter = join(queues, lease)
    entry = register(queues, waiter)
    if why == "late":
        virtual_time.advance(0.4 * TERMS.lease / 1000)
    if not why.startswith("only"):
        grant(queues, entry)
    if why == "a lost connection":
        queues.wake_all()
    elif why == "a forced release":
        queues.doubt_grants(LOCK_ID)
    elif why.endswith("a local hand-over"):
        queues.hand_over_lock(reserved_fences=3)
    attempt = attempt_of(queues, waiter)
    assert isinstance(attempt, Attempt)
    assert (attempt.adopted, attempt.token, attempt.address) == (None, entry.token, entry.address)


def test_grant_may_overtake_the_reply_to_the_request_that_registered_the_queue(queues: StandaloneQueues) -> None:
    """[H8] It isn't lost, and the entry isn't used again. A grant with an older fence than the holder's in the reply has
    ended."""
    for fence, adopted in ((FENCE + 1, True), (FENCE - 1, False)):
        waiter = join(queues)
        entry = ask(queues, waiter).entry
        assert entry is not None
        grant(queues, entry, fence)
        attempt = queues.begin_wait(Wait(waiter, NEVER, 60, queued()), queues.engine)
        assert isinstance(attempt, Attempt) is adopted
        if not adopted:
            grant(queues, entry, fence)
            assert not isinstance(attempt_of(queues, waiter), Attempt)
        queues.leave_queue(waiter, None, NOT_QUEUED if adopted else None)
        assert (queues.leftovers == []) is adopted


def test_grant_belongs_to_the_queue_and_not_to_its_head(queues: StandaloneQueues) -> None:
    """[H3] [H9] A head that leaves without it, or fails after it, passes it on; without a waiter it is freed."""
    first, second, third = join(queues), join(queues), join(queues)
    entry = register(queues, first)
    grant(queues, entry)
    assert queues.requeue(Requeue(LOCK_ID, None), queues.engine) is None
    queues.leave_queue(first, None, None)
    attempt = attempt_of(queues, second)
    assert isinstance(attempt, Attempt)
    queues.leave_queue(second, 0.0, None)
    assert second.gave_back
    again = attempt_of(queues, third)
    assert isinstance(again, Attempt)
    assert again.adopted is attempt.adopted
    assert queues.leftovers == []
    queues.leave_queue(third, 0.0, None)
    assert queues.leftovers == [(LOCK_ID, entry.address, None)]


def test_grant_to_a_closed_loop_is_freed(queues: StandaloneQueues) -> None:
    """[H9] Its tasks can't adopt it."""
    loop = asyncio.new_event_loop()
    entry = ask(queues, join(queues, loop=loop)).entry
    assert entry is not None
    loop.close()
    grant(queues, entry)
    assert queues.leftovers == [(LOCK_ID, entry.address, None)]


def test_release_registers_the_queue_with_the_terms_of_a_waiter_that_has_some(queues: StandaloneQueues) -> None:
    """[H4] The head may still be on the fast path, without terms."""
    queues.join()
    join(queues)
    entry = queues.requeue(Requeue(LOCK_ID, None), queues.engine)
    assert entry is not None
    assert (entry.token, entry.lease) != ("", 0)


def test_grant_that_no_queue_expects_is_freed(queues: StandaloneQueues) -> None:
    """[H9] By its token and fence, unless a request with the token has claimed the lock since."""
    waiter = join(queues)
    entry = register(queues, waiter)
    queues.leave_queue(waiter, None, None)
    grant(queues, entry)
    assert queues.engine.returned_grants == [(entry.token, FENCE + 1)]


@pytest.mark.parametrize("granted", [False, True])
def test_token_of_a_request_without_reply_is_not_used_again(queues: StandaloneQueues, *, granted: bool) -> None:
    """[H2] Its late copies are cleaned up, which frees a grant. The queue keeps its place."""
    first, second = join(queues), join(queues)
    entry = register(queues, first)
    assert ask(queues, first).token == entry.token
    queues.leave_queue(first, 0.0, None)
    if granted:
        grant(queues, entry)
    attempt = ask(queues, second)
    assert (attempt.enqueued_at, attempt.token == entry.token) == (7, False)
    assert queues.leftovers == [(LOCK_ID, entry.address, None)]


def test_entry_is_given_up_without_a_subscription(queues: StandaloneQueues) -> None:
    """[H7] Messages to it would be lost."""
    waiter = join(queues)
    entry = register(queues, waiter)
    queues.engine.process_name = ""
    attempt = ask(queues, waiter)
    assert (attempt.address, attempt.entry, attempt.token == entry.token) == ("", None, False)
    assert queues.leftovers == [(LOCK_ID, entry.address, None)]


def test_last_attempt_of_the_last_waiter_removes_the_entry(queues: StandaloneQueues) -> None:
    """[H9] So no grant goes to a queue that is left. With others behind, the queue stays registered; one that comes
    during that attempt registers it again."""
    first, second = join(queues), join(queues)
    register(queues, first)
    assert ask(queues, first, until=clock.now()).enqueued_at == 7
    queues.leave_queue(first, 60, queued())
    assert ask(queues, second, until=clock.now()).enqueued_at == LAST
    third = join(queues)
    queues.leave_queue(second, None, QueuePosition(fence=FENCE))
    attempt = attempt_of(queues, third)
    assert isinstance(attempt, Attempt)
    assert (attempt.entry is not None, attempt.enqueued_at) == (True, 0)
    assert queues.leftovers == []


def test_queue_that_cannot_be_registered_again_keeps_its_grant(queues: StandaloneQueues) -> None:
    """[H11] At maxmemory the store changes no registration. The grant overtakes the reply."""
    waiter = join(queues)
    entry = register(queues, waiter)
    ask(queues, waiter)
    grant(queues, entry)
    attempt = queues.begin_wait(Wait(waiter, NEVER, 60, QueuePosition(sent=clock.now(), fence=FENCE)), queues.engine)
    assert isinstance(attempt, Attempt)
    assert isinstance(attempt.adopted, DirectGrant)

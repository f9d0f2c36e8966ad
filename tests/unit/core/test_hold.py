"""The state of a hold and its grant after each step, with a manual clock."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from django_redis_locks import LockLost
from django_redis_locks.core import clock, owners
from django_redis_locks.core.grant import Grant
from django_redis_locks.core.hold import Hold, State
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.registry import end_block, forget_block, registry
from django_redis_locks.testing import ManualClock
from tests.unit.core.holds import LEASE, a_hold

LOCK_ID = LockId("store", "lock")


@pytest.fixture
def hold(virtual_time: ManualClock) -> Hold:
    """A hold that this thread has just acquired."""
    return a_hold(LOCK_ID, clock.now())


def test_hold_that_is_being_released_is_neither_entered_nor_lost(hold: Hold) -> None:
    assert hold.release_grant(1)
    assert hold.state is State.RELEASING
    assert not hold.add_grant(2)
    assert not hold.open_grants
    assert not hold.release_grant(1), "another thread releases it already"
    assert not hold.mark_lost("expired"), "the release reports the loss to its owner"


def test_signal_handler_may_release_while_its_thread_changes_the_hold(hold: Hold) -> None:
    """[E7] Otherwise it would wait for its own thread for ever."""
    left: list[bool] = []

    def interrupted() -> None:
        with hold.mutex.rlock:
            left.append(hold.release_grant(1))

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(10)
    assert left == [True]


def test_loss_found_before_an_extension_is_ignored(hold: Hold) -> None:
    over = hold.deadline
    hold.extend_deadline(clock.now() + 1, LEASE)
    assert not hold.mark_lost("expired", at=over)
    assert hold.loss_reason is None


def test_extension_after_a_loss_is_refused(hold: Hold) -> None:
    assert hold.mark_lost("expired")
    assert not hold.extend_deadline(clock.now(), LEASE)


def test_grant_is_lost_when_its_lease_is_over(hold: Hold, virtual_time: ManualClock) -> None:
    """[L2] Without a request to the store, and before the maintenance thread detects it."""
    keeper: Any = None
    grant = Grant(hold, keeper, 1)
    assert (grant.lost, grant.held) == (False, True)
    virtual_time.advance(LEASE / 1000)
    assert (grant.lost, grant.held, grant.protected) == (True, False, True)


def test_grant_of_a_released_inner_entry_is_not_held(hold: Hold) -> None:
    """The outer entry still holds the lock."""
    keeper: Any = None
    outer, inner = Grant(hold, keeper, 1), Grant(hold, keeper, 2)
    assert hold.add_grant(2)
    assert not hold.release_grant(2)
    assert outer.remaining() > inner.remaining() == 0.0
    assert (outer.held, inner.held) == (True, False)
    outer.ensure_held()
    with pytest.raises(LockLost, match="released"):
        inner.ensure_held()


def test_renewal_for_inner_entries_ends_with_the_last_of_them(hold: Hold) -> None:
    """[E13] In any order of their ends. An entry that replaces another one is renewed for as long as that was."""
    for entry in (2, 3):
        hold.add_grant(entry)
        hold.renew_for(entry, 60.0)
    hold.add_grant(4, like=1)
    hold.add_grant(5, like=3)
    for entry in (2, 4, 3):
        hold.release_grant(entry)
        assert hold.renew_until == 60.0
    hold.leave(5)
    assert (hold.renew_until, hold.open_grants) == (0.0, {1})


def test_owner_that_is_a_finished_task_is_not_alive() -> None:
    async def acquire() -> Hold:
        return a_hold(LOCK_ID, clock.now(), owner=asyncio.current_task())

    async def main() -> None:
        task = asyncio.create_task(acquire())
        assert not owners.is_alive(await task)

    asyncio.run(main())


def test_forgotten_block_is_not_ended(hold: Hold) -> None:
    """A block that never began: the next block of the same lock object would release its grant."""
    lock: Any = object()
    grant = Grant(hold, lock, 1)
    registry.register(grant, block=1)
    forget_block(grant)
    assert end_block(lock, 1) is None

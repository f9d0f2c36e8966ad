"""Mutations of the engine, each without one of its rules: the simulation must report each of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory.store import Store, StoredValue
from django_redis_locks.core import clock, hold
from django_redis_locks.core.clock import monotonic
from django_redis_locks.core.queue_values import DirectGrant, HandedOverLock
from django_redis_locks.core.steps.locks import ReleaseLock
from django_redis_locks.engine.engine import Engine
from django_redis_locks.engine.local_queues import WaitQueue
from django_redis_locks.engine.renewal_schedule import RenewalSchedule
from django_redis_locks.primitives.shared import acquire, multi_acquire
from tests.simulation.network import SimulatedSubscriber

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]


def no_token_on_release(patch: Patch) -> None:
    """A release frees the lock of any holder."""
    real = memory._steps["lock/release"]

    def free(store: Store, keys: tuple[str, ...], args: ReleaseLock) -> Any:
        record = store.find(keys[0])
        return real(store, keys, args if record is None else args._replace(token=record.token))

    patch.setitem(memory._steps, "lock/release", free)


def no_drift(patch: Patch) -> None:
    """[H14] The local deadline leaves no margin for clock drift."""
    patch.setattr(hold, "DRIFT_SHARE", -0.02)


def fence_without_clock(patch: Patch) -> None:
    """[H1] A fence is a plain counter, without the clock."""

    def next_fence(self: Store, counter: str, last: int = 0, reserved_fences: int = 0) -> int:
        fence = max(self.fences.get(counter, 1000), last + reserved_fences if last else 0) + 1
        self.fences[counter] = fence + reserved_fences
        return fence

    patch.setattr(Store, "next_fence", next_fence)


def lease_lowered(patch: Patch) -> None:
    """[H2] A step lowers the lease of a live token."""

    def extend(self: Any, lease: int) -> None:
        self.ends = monotonic() + lease / 1000

    patch.setattr(StoredValue, "extend", extend)


def adopted_lock_never_doubted(patch: Patch) -> None:
    """[H3] A vanished lock is reported as lost although an earlier attempt got no reply. Used by the state explorer."""
    patch.setattr(HandedOverLock, "adoption_unanswered", property(lambda self: False, lambda self, doubt: None))


def registered_too_early(patch: Patch) -> None:
    """[H7] A process is registered as a waiter before it is subscribed."""
    patch.setattr(SimulatedSubscriber, "channel_name", lambda self, channel: channel + self.id)


def grant_forgotten(patch: Patch) -> None:
    """[H8] A grant that overtakes the reply "busy" is forgotten."""
    real = WaitQueue.record_reply

    def record_reply(self: WaitQueue, *args: Any) -> None:
        real(self, *args)
        self.granted = None

    patch.setattr(WaitQueue, "record_reply", record_reply)


def late_grant_adopted(patch: Patch) -> None:
    """[H14] The lease of a grant counts from the arrival of its message."""
    patch.setattr(DirectGrant, "deadline", property(lambda self: clock.now() + self.entry.lease / 1000))


def grant_not_passed_on(patch: Patch) -> None:
    """[H9] What was granted to a process that no longer waits isn't passed on."""
    patch.setattr(Engine, "_send_unregister", lambda self, *what: None)


def newcomer_first(patch: Patch) -> None:
    """[L32] A caller takes a free fair lock although others wait for it."""
    patch.setattr(Store, "is_first_in_line", lambda *what: True)


def waiter_left_in_queue(patch: Patch) -> None:
    """[E11] After an exception a waiter stays at the head of the queue, although its request was collected."""
    patch.setattr(acquire, "run_twice_if_interrupted", lambda clean_up: None)
    patch.setattr(WaitQueue, "head", lambda queue: queue.waiters[0] if queue.waiters else None)


def no_local_queue_wakeup(patch: Patch) -> None:
    """The next head of a local queue isn't woken."""
    patch.setattr(WaitQueue, "notify_head", lambda self: None)


def never_renewed(patch: Patch) -> None:
    """[H6] No lease is renewed."""
    patch.setattr(RenewalSchedule, "add", lambda self, *args, **options: inf)


def renewed_in_child(patch: Patch) -> None:
    """[H18] A forked child renews the locks of its parent."""
    real = RenewalSchedule.clear
    patch.setattr(RenewalSchedule, "clear", lambda self: None if hasattr(self, "_new") else real(self))


def released_in_child(patch: Patch) -> None:
    """[H18] A forked child treats the locks of its parent as its own."""
    patch.setattr(hold.Hold, "inherited_by_fork", False)


def busy_lock_taken_with_others(patch: Patch) -> None:
    """[L38] Several locks are acquired although one of them is held."""
    real = memory._steps["multi/acquire"]

    def acquire(store: Store, keys: tuple[str, ...], args: Any) -> Any:
        store.records.pop(keys[2], None)
        return real(store, keys, args)

    patch.setitem(memory._steps, "multi/acquire", acquire)


def pause_without_end(patch: Patch) -> None:
    """[L38] A caller that has given locks back sleeps for the rest of its wait."""
    patch.setattr(multi_acquire, "PAUSE", (1000.0, 1000.0))


MUTATIONS: list[tuple[Mutation, str]] = [
    (busy_lock_taken_with_others, "two hold the lock|it was not taken"),
    (pause_without_end, "all of its locks are free"),
    (no_token_on_release, "two hold the lock|it was not taken"),
    (no_drift, "two hold the lock|an old one"),
    (fence_without_clock, "isn't above"),
    (lease_lowered, "two hold the lock|nothing kept its renewal|it was not taken"),
    (registered_too_early, "waits although"),
    (grant_forgotten, "isn't adopted"),
    (late_grant_adopted, "two hold the lock|an old one|isn't above"),
    (grant_not_passed_on, "isn't adopted"),
    (newcomer_first, "overtakes"),
    (waiter_left_in_queue, "waits although|fails without a fault|waits .* no more than"),
    (no_local_queue_wakeup, "waits although|isn't adopted"),
    (never_renewed, "nothing kept its renewal"),
    (renewed_in_child, "forked from"),
    (released_in_child, "forked from"),
]
"""Each mutation with the messages that the first seed to detect it may report."""

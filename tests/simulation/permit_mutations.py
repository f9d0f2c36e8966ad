"""Mutations of permits, each without one of their rules: the simulation must report each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory import permits
from django_redis_locks.backends.memory.permits import Permits
from django_redis_locks.backends.memory.store import Store
from django_redis_locks.core.clock import monotonic
from django_redis_locks.core.steps.permits import AcquirePermits, DowngradePermits, RenewPermits, UnregisterPermits
from django_redis_locks.core.write_hold import WriteHold
from django_redis_locks.engine.wait_queue import WaitQueue

Patch = pytest.MonkeyPatch
Step = Callable[[Store, tuple[str, ...], Any], Any]


def replaced(patch: Patch, name: str, replace: Callable[[Step], Step]) -> None:
    """Replace a step of the store."""
    patch.setitem(memory._steps, name, replace(memory._steps[name]))


def own_limit_wins(patch: Patch) -> None:
    """[L37] Each request is granted by the limit that it names, whatever limit the holders named."""
    patch.setattr(Permits, "limit_for", lambda self, limit: limit)


def newcomer_first(patch: Patch) -> None:
    """[L34] A request takes free permits although others wait for them: readers starve a writer."""
    real = permits._grant
    patch.setattr(permits, "_grant", lambda *what: (real(*what)[0], True))


def ended_leases_kept(patch: Patch) -> None:
    """[L36] A renewal extends all leases of the key."""

    def extending_all(real: Step) -> Step:
        def renew(store: Store, keys: tuple[str, ...], args: RenewPermits) -> Any:
            found = store.find(keys[0])
            for hold in found.holds.values() if isinstance(found, Permits) else ():
                if hold.ends > monotonic():
                    hold.extend(args.lease)
            return real(store, keys, args)

        return renew

    replaced(patch, "permits/renew", extending_all)


def silent_waiter_kept(patch: Patch) -> None:
    """[L33] [L34] A stopped writer keeps readers waiting for as long as it is stopped."""
    real = permits._register

    def register(store: Store, keys: tuple[str, ...], waiter: Any, keeps_place: bool) -> int:
        return real(store, keys, waiter._replace(waiter_ttl=10**9), keeps_place)

    patch.setattr(permits, "_register", register)


def dead_waiter_kept(patch: Patch) -> None:
    """[L33] [L34] A killed writer keeps readers waiting until it was silent for too long."""
    patch.setattr(Permits, "exhausted", True)


def one_waiter_granted(patch: Patch) -> None:
    """[L34] A release of several permits grants them to one waiter only."""
    real = permits._pass_on

    def pass_on(store: Store, keys: tuple[str, ...], found: Permits) -> bool:
        line = dict(sorted(store.queues.get(keys[2], {}).items(), key=lambda entry: entry[1]))
        if line:
            first = next(iter(line))
            store.queues[keys[2]] = {first: line.pop(first)}
        notified = real(store, keys, found)
        if line:
            store.queues.setdefault(keys[2], {}).update(line)
        return notified

    patch.setattr(permits, "_pass_on", pass_on)


def departure_unnoticed(patch: Patch) -> None:
    """[L33] A waiter that leaves the line lets no other one pass."""

    def leaving_only(real: Step) -> Step:
        def unregister(store: Store, keys: tuple[str, ...], args: UnregisterPermits) -> int:
            if args.grant is None and not _holds(store, keys, args.address.split(" ")[2:3]):
                permits._forget(store, keys, args.address)
                return 0
            return int(real(store, keys, args))

        return unregister

    replaced(patch, "permits/unregister", leaving_only)


def _holds(store: Store, keys: tuple[str, ...], tokens: list[str]) -> bool:
    found = store.find(keys[0])
    return isinstance(found, Permits) and any(token in found.holds for token in tokens)


def place_forgotten(patch: Patch) -> None:
    """[L34] The repetition of a request moves its waiter to the end of the line."""
    real = Store.place_in_line
    patch.setattr(Store, "place_in_line", lambda self, waiters, address: real(self, waiters, ""))


def registered_again_at_the_end(patch: Patch) -> None:
    """[L34] A waiter doesn't remember its place."""
    for name in ("place", "enqueued_at"):
        patch.setattr(WaitQueue, name, property(lambda self: 0, lambda self, place: None))


def repeated_acquire_counts_twice(patch: Patch) -> None:
    """[L37] The repetition of a granted request gets another fence."""

    def with_new_fence(real: Step) -> Step:
        def acquire(store: Store, keys: tuple[str, ...], args: AcquirePermits) -> Any:
            found = store.find(keys[0])
            hold = found.holds.get(args.token) if isinstance(found, Permits) else None
            if hold is not None:
                hold.fence = store.next_fence(keys[4])
            return real(store, keys, args)

        return acquire

    replaced(patch, "permits/acquire", with_new_fence)


def downgrade_lets_go(patch: Patch) -> None:
    """[L35] A writer that goes on as a reader gives up all permits, and gets one back when it can."""

    def releasing(real: Step) -> Step:
        def downgrade(store: Store, keys: tuple[str, ...], args: DowngradePermits) -> Any:
            return memory._steps["permits/release"](store, keys, args)

        return downgrade

    replaced(patch, "permits/downgrade", releasing)


def downgrade_forgotten(patch: Patch) -> None:
    """[L35] A writer that releases its write lock first keeps all permits until it has read."""
    patch.setattr(WriteHold, "end_write", lambda self, grant: False)


MUTATIONS: list[tuple[Callable[[Patch], None], str]] = [
    (own_limit_wins, "more permits"),
    (newcomer_first, "overtakes"),
    (ended_leases_kept, "which it doesn't name"),
    (silent_waiter_kept, "waits although|stay"),
    (dead_waiter_kept, "waits although|although its permits are free"),
    (one_waiter_granted, "although its permits are free"),
    (departure_unnoticed, "although its permits are free"),
    (place_forgotten, "has lost its place"),
    (registered_again_at_the_end, "has lost its place"),
    (repeated_acquire_counts_twice, "the fence of"),
    (downgrade_lets_go, "takes the permits"),
    (downgrade_forgotten, "only reads now"),
]
"""Each mutation with the messages that the first seed to detect it may report."""

"""Triggers of the known defects of locks, in addition to the choices of the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired, LockNotOwned
from django_redis_locks.core import events, grant_stack
from django_redis_locks.core.registry import registry
from django_redis_locks.primitives.shared import acquire
from tests.simulation.scheduler import Interrupted, current
from tests.simulation.visit_rules import store_key

if TYPE_CHECKING:
    from tests.simulation.lock_world import LockWorld
    from tests.simulation.process import Process

OWN = "own"
"""A key that no visit uses."""


def slow_receiver(world: LockWorld, process: Process) -> None:
    """A receiver of the signal of a loss takes six seconds; another lock must still be renewed."""
    receive = world.installation.on_event

    def on_event(event: events.Event) -> None:
        receive(event)
        if isinstance(event, events.Lost):
            current().sleep(6.0)

    def lose() -> None:
        process.locks.lock("lost").acquire()
        world.server.store.records.pop(store_key("lost"))
        current().sleep(20.0)

    def stand_by() -> None:
        current().sleep(0.5)
        grant = process.locks.lock(OWN).acquire()
        current().sleep(15.0)
        if grant.lost:
            world.scheduler.violation("a bystander's lock isn't renewed while a receiver takes its time")

    world.installation.on_event = on_event
    process.thread("thread that loses", lose)
    process.thread("bystander", stand_by)


def leases_that_end(world: LockWorld, process: Process) -> None:
    """A thread acquires many locks whose leases end without a release."""

    def take() -> None:
        for number in range(150):
            process.locks.lock(f"code {number}", expire=0.02).acquire(timeout=0)
        current().sleep(1.0)
        process.locks.lock(OWN, expire=0.02).acquire(timeout=0)
        for remembered in (len(list(grant_stack.entries())), len(registry)):
            if remembered > 100:
                world.scheduler.violation(f"{remembered} leases that are over are remembered")

    process.thread("thread", take)


def two_exceptions(world: LockWorld, process: Process) -> None:
    """A second signal handler raises before the cleanup after the first one."""
    real = acquire.run_twice_if_interrupted

    def interrupt(clean_up: Callable[[], object]) -> None:
        acquire.run_twice_if_interrupted = real
        raise Interrupted

    def hold() -> None:
        grant = process.locks.lock(OWN).acquire()
        current().sleep(1.0)
        grant.release()

    def wait() -> None:
        current().sleep(0.1)
        process.locks.lock(OWN, wait=20).acquire()

    def wait_behind() -> None:
        current().sleep(0.2)
        try:
            process.locks.lock(OWN, wait=10).acquire()
        except LockNotAcquired:
            world.scheduler.violation("a waiter gives up although the lock is free")

    def interrupt_waiter() -> None:
        acquire.run_twice_if_interrupted = interrupt
        waiter.interruptions += 1
        waiter.wake()

    process.thread("holder", hold)
    waiter = process.thread("thread that waits", wait)
    process.thread("thread behind", wait_behind)
    world.scheduler.at(0.5, interrupt_waiter)


def reply_of_reentry_lost(world: LockWorld, process: Process) -> None:
    """One reply is lost while an inner entry requests a longer lease."""

    def enter_twice() -> None:
        with process.locks.rlock(OWN, expire=5):
            world.faults.force("reply lost", "lock/renew", process)
            try:
                with process.locks.rlock(OWN, expire=20, wait=10):
                    pass
            except LockBackendError as error:
                world.scheduler.violation(f"one lost answer fails a re-entry that may wait for 10 s: {error}")

    process.thread("thread", enter_twice)


def renewed_inside_of_fixed(world: LockWorld, process: Process) -> None:
    """A renewed entry inside a fixed lease ends."""

    def enter_twice() -> None:
        lock = process.locks.rlock(OWN, expire=1)
        grant = lock.acquire()
        with process.locks.rlock(OWN):
            pass
        current().sleep(2 * world.lease + 5)
        if not grant.lost:
            world.scheduler.violation("a fixed lease is renewed after an inner entry has ended")

    process.thread("thread", enter_twice)


def force_of_an_old_fence(world: LockWorld, process: Process) -> None:
    """An operator frees the displayed hold, but another hold of the same process has started since."""
    fences: list[int] = []

    def visit(number: int) -> None:
        current().sleep(0.001 * number)
        with process.locks.lock(OWN, wait=10) as grant:
            fences.append(grant.fence)
            current().sleep(0.004 if len(fences) < 4 else 1.0)

    def force() -> None:
        while len(fences) < 4:
            current().sleep(0.001)
        for fence in fences[:-1]:
            if process.locks.lock(OWN).force_release("simulated", fence=fence):
                world.scheduler.violation(f"fence {fence} is forced, and the hold with {fences[-1]} is freed")

    for number in range(4):
        process.thread(f"thread {number}", lambda number=number: visit(number))
    process.thread("operator", force)


def answer_later_than_the_lease(world: LockWorld, process: Process) -> None:
    """The reply to the only attempt arrives after the end of the lease."""

    def ask_once() -> None:
        world.faults.slow("lock/acquire", 1.0)
        try:
            with process.locks.lock(OWN, expire=0.5, wait=0):
                pass
        except LockNotAcquired as error:
            if error.holder is None:
                world.scheduler.violation("the lock is reported as busy, and has no holder")
        except LockBackendError:
            pass

    process.thread("thread", ask_once)


def touch_after_the_loss(world: LockWorld, process: Process) -> None:
    """A record is extended after its loss was reported, since no renewal got a reply."""
    lost: list[object] = []

    def hold() -> None:
        ref = process.locks.record(OWN)
        record = ref.put(None, {"a": 1}, 1.0, renew=True, on_lost=lost.append).record
        for _ in range(20):
            world.faults.force("reply lost", "record/touch", process)
        while not lost:
            current().sleep(0.05)
        world.faults.forced.clear()
        if ref.touch(record, 30).ok:
            world.scheduler.violation("a record is extended after its loss was reported")

    process.thread("thread", hold)


def server_down(world: LockWorld, process: Process) -> None:
    """The server is down, and one caller has detected it."""

    def ask() -> None:
        world.server.down_until = 100.0
        world.faults.disturb(110.0, None, "down")
        for number in range(2):
            began = world.scheduler.now
            try:
                process.locks.lock(OWN, wait=8).acquire()
            except LockBackendError:
                took = world.scheduler.now - began
                if number == 1 and took > 3.0:
                    world.scheduler.violation(f"the second caller of a server that is down waits for {took:.1f} s")

    process.thread("thread", ask)


def released_grant_entered(world: LockWorld, process: Process) -> None:
    """A block begins with a grant that was released."""

    def enter() -> None:
        grant = process.locks.lock(OWN).acquire()
        grant.release()
        with suppress(LockLost), grant:
            world.scheduler.violation("a released grant is entered")

    process.thread("thread", enter)


def held_after_release(world: LockWorld, process: Process) -> None:
    """A released grant reports whether it is held."""

    def ask() -> None:
        grant = process.locks.lock(OWN).acquire()
        grant.release()
        if grant.held:
            world.scheduler.violation("a released grant says that it is held")

    process.thread("thread", ask)


def release_in_a_loop(world: LockWorld, process: Process) -> None:
    """A task calls the synchronous release, which is refused."""

    async def refuse() -> None:
        grant = await process.locks.lock(OWN).aacquire()
        try:
            grant.release()
        except SynchronousOnlyOperation:
            await asyncio.sleep(1.0)
            if store_key(OWN) not in world.server.store.records:
                world.scheduler.violation("a refused release has released the lock")
            return
        await grant.arelease()

    process.loop("loop", refuse)


def block_ends_elsewhere(world: LockWorld, process: Process) -> None:
    """A generator's block begins in one thread and ends in another one, after a later block of the same lock."""
    lock = process.locks.lock(OWN, expire=2)

    def produce() -> Iterator[None]:
        with suppress(LockLost), lock:
            yield

    generators = [produce(), produce()]

    def begin() -> None:
        next(generators[0])
        current().sleep(30.0)

    def end() -> None:
        current().sleep(1.0)
        try:
            next(generators[0], None)
        except LockNotOwned:
            world.scheduler.violation("a block that ends in another thread doesn't release the lock")
        next(generators[1])
        current().sleep(3.0)
        with lock as grant:
            next(generators[1], None)
            if not grant.held:
                world.scheduler.violation("a block that ends in another thread ends another block")

    process.thread("thread", begin)
    process.thread("other thread", end)


def taken_after_hand_over(world: LockWorld, process: Process) -> None:
    """A grant is released by hand-over, and the lock is freed by force before the next holder's request."""
    released: list[Any] = []

    def hold() -> None:
        grant = process.locks.lock(OWN).acquire()
        current().sleep(0.5)
        grant.release()
        released.append(grant)
        world.server.store.records.pop(store_key(OWN))
        current().sleep(5.0)
        if grant.hold.loss_reason is not None:
            world.scheduler.violation("a released grant is reported as lost")

    def wait() -> None:
        current().sleep(0.1)
        process.locks.lock(OWN, wait=10).acquire().release()

    process.thread("holder", hold)
    process.thread("thread that waits", wait)


TRIGGERS: dict[str, Callable[[LockWorld, Process], None]] = {
    "E2": slow_receiver,
    "E3": leases_that_end,
    "E11": two_exceptions,
    "E12": reply_of_reentry_lost,
    "E13": renewed_inside_of_fixed,
    "E15": force_of_an_old_fence,
    "E16": answer_later_than_the_lease,
    "E17": touch_after_the_loss,
    "E18": server_down,
    "L1": released_grant_entered,
    "L2": held_after_release,
    "L3": release_in_a_loop,
    "L4": block_ends_elsewhere,
    "hand-over": taken_after_hand_over,
}

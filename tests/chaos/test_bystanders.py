"""What goes wrong over one lock, or in the code of one user, costs no other lock anything."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import LockBackendError, LockLost, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE, renewed
from tests.chaos.test_processes import in_child
from tests.probes import maintenance
from tests.probes.events import Event, Lost, Released
from tests.waiting import eventually, in_thread

Open = Callable[..., Locks]


@pytest.fixture
def memory(settings: Any, request: pytest.FixtureRequest) -> Locks:
    """A store of its own, with a janitor of its own."""
    location = request.node.name
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": location}
    }
    return locks["default"]


@pytest.mark.usefixtures("often")
def test_a_renewal_promises_no_more_than_it_asked_for(memory: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H17] [H2] After an inner entry with a longer lease the renewals ask for the outer one, and count with that:
    otherwise the holder would believe in a lock that is another's already."""
    renewals, call_many = 0, memory.engine.backend.call_many

    def count(commands: Any, timeout: float) -> Any:
        nonlocal renewals
        replies = call_many(commands, timeout)
        renewals += 1
        return replies

    monkeypatch.setattr(memory.engine.backend, "call_many", count)
    outer = memory.rlock("a", expire=LEASE, renew=True).acquire()
    memory.rlock("a", expire=2 * LEASE).acquire()
    eventually(lambda: renewals > 4)
    deadline = outer.hold.deadline  # before the look: the next renewal may be done between the two
    holder = memory.lock("a").holder()
    assert deadline < clock.now() + holder.lease_left


@pytest.mark.usefixtures("often")
def test_on_lost_cannot_end_the_thread_of_all_locks(memory: Locks) -> None:
    """[E8] Not even by sys.exit()."""
    told = threading.Event()
    memory.lock("bad", expire=0.1, on_lost=lambda grant: told.set() or sys.exit(1)).acquire()
    good = memory.lock("good", expire=LEASE, renew=True).acquire()
    assert told.wait(20)
    renewed(good)
    good.release()


@pytest.mark.usefixtures("often")
def test_a_logging_filter_that_fails_costs_no_lock(memory: Locks) -> None:
    """[L9] The holds that were renewed in the same write as the one whose loss was to be logged."""

    class Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise KeyError("request_id")

    log = logging.getLogger("django_redis_locks.lost")
    broken = Filter()
    log.addFilter(broken)
    try:
        bad = memory.lock("bad", expire=LEASE, renew=True).acquire()
        good = [memory.lock(f"good:{number}", expire=LEASE, renew=True).acquire() for number in range(3)]
        memory.lock("bad").force_release()
        eventually(lambda: bad.lost)
        renewed(*good)
    finally:
        log.removeFilter(broken)


@pytest.mark.usefixtures("often")
def test_whatever_a_connection_raises_is_a_store_that_failed(open_locks: Open, redis_url: str) -> None:
    """[L9] A provider of credentials has exceptions of its own; renewal goes on when it does."""

    class Credentials(redis.CredentialProvider):
        broken = False
        asked_in_vain = 0

        def get_credentials(self) -> tuple[str, str]:
            if self.broken:
                self.asked_in_vain += 1
                raise ZeroDivisionError("the vault is closed")
            return ("default", "")

    credentials = Credentials()
    with redis.Redis.from_url(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "on", "nopass")
    options = {"credential_provider": credentials, "max_connection_age": 0.1}
    client = open_locks(redis_url, OPTIONS=options)
    grant = client.lock("a", expire=LEASE, renew=True).acquire()
    credentials.broken = True
    eventually(lambda: credentials.asked_in_vain)
    with pytest.raises(LockBackendError, match="the vault is closed"):
        client.lock("b", wait=0).acquire()
    credentials.broken = False
    renewed(grant)
    grant.release()


def test_a_question_that_crosses_a_release_is_no_loss(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    """[L8] ensure_held(confirm=True) in one thread, release in another: LockLost there, but nothing is reported lost."""
    grant = memory.lock("a").acquire()
    backend, call = memory.engine.backend, memory.engine.backend.call
    asked, freed = threading.Event(), threading.Event()

    def crossing(command: Any) -> Any:
        if command.name == "lock/renew":
            asked.set()
            assert freed.wait(20)
        reply = call(command)
        if command.name == "lock/free":
            freed.set()
        return reply

    monkeypatch.setattr(backend, "call", crossing)
    told: list[BaseException] = []

    def confirm() -> None:
        try:
            grant.ensure_held(confirm=True)
        except LockLost as error:
            told.append(error)

    asker = threading.Thread(target=confirm)
    asker.start()
    assert asked.wait(20)
    grant.release()
    asker.join(20)
    assert "released meanwhile" in str(told[0])
    assert not [event for event in heard if isinstance(event, Lost)]


def test_a_release_that_succeeded_unheard_stays_one(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    """[H15] Tried again after the lease: the first attempt was in time, so nothing was lost."""
    grant = memory.lock("a", expire=60).acquire()
    backend, call = memory.engine.backend, memory.engine.backend.call

    def unheard(command: Any) -> Any:
        call(command)
        raise LockBackendError("no answer", unanswered=True, passing=True)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "call", unheard)
        with pytest.raises(LockBackendError):
            grant.release()
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 61)
    grant.release()
    assert [event.confirmed for event in heard if isinstance(event, Released)] == [False]
    assert not [event for event in heard if isinstance(event, Lost)]


def test_three_threads_release_one_grant_once(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, heard: list[Event]
) -> None:
    """[F4] Idempotent, also while the first one is under way."""
    grant = memory.lock("a").acquire()
    backend, call = memory.engine.backend, memory.engine.backend.call
    under_way, go_on = threading.Event(), threading.Event()

    def slow(command: Any) -> Any:
        under_way.set()
        assert go_on.wait(20)
        return call(command)

    monkeypatch.setattr(backend, "call", slow)
    first = threading.Thread(target=grant.release)
    first.start()
    assert under_way.wait(20)
    for _ in range(2):
        in_thread(lambda: grant.release() or True)
    go_on.set()
    first.join(20)
    assert len([event for event in heard if isinstance(event, Released)]) == 1


def test_a_with_block_in_another_context_masks_nothing(memory: Locks) -> None:
    """[L4] A generator's `with` may begin and end in different contexts of one thread: released, and its own exception
    is the one that is seen."""

    def work() -> Iterator[int]:
        with memory.lock("a"):
            yield 1
            raise ZeroDivisionError("the body's own")

    running = work()
    contextvars.copy_context().run(next, running)
    with pytest.raises(ZeroDivisionError):
        next(running)
    assert not memory.lock("a").locked()


def test_the_collector_may_end_a_with_block_inside_our_tables(memory: Locks) -> None:
    """[H13] An abandoned generator in a cycle is closed where the collector pleases: its release needs the same mutexes,
    in the same thread."""

    def work() -> Iterator[None]:
        with memory.lock("a"):
            yield

    running = work()
    next(running)
    cycle: list[object] = [running]
    cycle.append(cycle)
    del running, cycle
    with maintenance.engine_mutexes_held(memory):
        gc.collect()
    assert not memory.lock("a").locked()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_may_open_an_alias_that_its_parent_was_opening(memory: Locks) -> None:
    """[H18] The mutex of the aliases was held by a thread that the child doesn't have."""
    held, done = threading.Event(), threading.Event()

    def opening() -> None:
        with maintenance.aliases_mutex_held():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=opening)
    thread.start()
    assert held.wait(20)

    def child() -> None:
        maintenance.forget_aliases()
        assert locks["default"]

    try:
        in_child(child)
    finally:
        done.set()
        thread.join(20)


def test_timers_of_released_locks_are_forgotten(memory: Locks) -> None:
    """[H16] Released long before their leases end, thousands of locks with `on_lost` leave nothing in the janitor."""
    for _ in range(3000):
        with memory.lock("a", expire=3600, on_lost=print):
            pass
    memory.engine.settle(20)
    assert maintenance.timer_count(memory) < 300


def test_connections_of_a_rush_are_closed_one_by_one(open_locks: Open, redis_url: str) -> None:
    """[H24] The last one in is the first one out: what lies below would stay open for ever, with its old password."""
    client = open_locks(redis_url, OPTIONS={"max_connection_age": 0.3})
    maintenance.add_idle_connections(client, 10)
    time.sleep(0.4)
    for _ in range(12):
        with client.lock("a", expire=5):
            pass
    assert maintenance.idle_connection_count(client) == 1


@pytest.mark.usefixtures("often")
def test_a_renewal_on_a_closed_connection_is_no_trouble(
    open_locks: Open, redis_url: str, direct: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """[H24] A server's timeout closes what lies idle between two renewals: tried again at once, without a warning."""
    client = open_locks(redis_url)
    with client.lock("a", expire=LEASE, renew=True) as grant:
        for _ in range(4):
            direct.client_kill_filter(_type="normal", skipme=True)
            renewed(grant)
    assert "couldn't be renewed" not in caplog.text


def test_a_with_block_ends_with_its_own_grant(memory: Locks) -> None:
    """[L1] [L4] A block whose lease is over ends inside of another block of the same key: the other one stays locked."""

    def work() -> Iterator[None]:
        with memory.lock("a", expire=0.1):
            yield

    running = work()
    next(running)
    time.sleep(0.2)
    with memory.lock("a", expire=30) as mine:
        running.close()
        mine.ensure_held(confirm=True)
        assert in_thread(lambda: memory.lock("a").acquire(timeout=0)) is None


def test_a_generator_that_its_loop_closes_frees_its_lock(memory: Locks) -> None:
    """[D39] `asyncio.run` closes what is left in a task of its own, when the one that acquired is done."""
    kept: list[Any] = []

    async def work() -> AsyncIterator[None]:
        async with memory.lock("a"):
            yield

    async def main() -> None:
        running = work()
        kept.append(running)
        await anext(running)

    asyncio.run(main())
    assert not memory.lock("a").locked()

"""A failure of one lock, or of a user's callback, doesn't affect other locks."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import LockBackendError, LockLost, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE, renewed
from tests.probes import client as probes
from tests.probes.engine import Event, Lost, Released
from tests.waiting import eventually, in_thread

Open = Callable[..., Locks]


@pytest.fixture
def memory(settings: Any, request: pytest.FixtureRequest) -> Locks:
    """A store and a maintenance thread that no other test uses."""
    location = request.node.name
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": location}
    }
    return locks["default"]


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_extends_the_local_deadline_by_the_requested_lease_only(
    memory: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H17] [H2] After an inner entry with a longer lease the renewals request the outer lease, and the local deadline
    follows
    it: otherwise it would be later than the end of the lease in the store."""
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
    deadline = outer.hold.deadline  # read first: a renewal may happen between the two reads
    assert deadline < clock.now() + memory.lock("a").holder().lease_left


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_continues_after_failing_user_code(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """[E8] [L9] The maintenance thread survives an `on_lost` that raises SystemExit, a failing log filter and a failing
    job; the other holds of the same write are renewed."""

    class Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise KeyError("request_id")

    good = [memory.lock(f"good:{number}", expire=LEASE, renew=True).acquire() for number in range(3)]
    for number, on_lost in enumerate((lambda grant: sys.exit(1), lambda grant: 1 / 0, None)):
        bad = memory.lock(f"bad:{number}", expire=LEASE, renew=True, on_lost=on_lost).acquire()
        if on_lost is None:
            for name in ("django_redis_locks", "django_redis_locks.lost"):
                monkeypatch.setattr(logging.getLogger(name), "filters", [Filter()])
        probes.run_in_background(memory, sys.exit)
        memory.lock(f"bad:{number}").force_release()
        eventually(lambda bad=bad: bad.lost)
        renewed(*good)
    assert caplog.text.count("on_lost of lock bad failed") == 2
    assert "failed and continues" in caplog.text


def crossing(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[], object]
) -> tuple[threading.Thread, threading.Event]:
    """Start a thread that calls `function`, and block its first command of this name until the event is set."""
    backend, call = memory.engine.backend, memory.engine.backend.call
    under_way, proceed = threading.Event(), threading.Event()

    def slow(command: Any) -> Any:
        if command.name == name and not under_way.is_set():
            under_way.set()
            assert proceed.wait(20)
        return call(command)

    monkeypatch.setattr(backend, "call", slow)
    thread = threading.Thread(target=work)
    thread.start()
    assert under_way.wait(20)
    return thread, proceed


def test_confirmation_concurrent_with_a_release_reports_no_loss(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    """[L8] ensure_held(confirm=True) in one thread, release in another: the former raises LockLost, but no loss is
    reported."""
    grant = memory.lock("a").acquire()
    errors: list[BaseException] = []

    def confirm() -> None:
        try:
            grant.ensure_held(confirm=True)
        except LockLost as error:
            errors.append(error)

    asker, proceed = crossing(memory, monkeypatch, "lock/renew", confirm)
    grant.release()
    proceed.set()
    asker.join(20)
    assert "released in the meantime" in str(errors[0])
    assert not [event for event in events if isinstance(event, Lost)]


def test_three_threads_release_one_grant_once(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    """[F4] A second release is idempotent, also while the first one is in progress."""
    grant = memory.lock("a").acquire()
    first, proceed = crossing(memory, monkeypatch, "lock/release", grant.release)
    for _ in range(2):
        in_thread(lambda: grant.release() or True)
    proceed.set()
    first.join(20)
    assert len([event for event in events if isinstance(event, Released)]) == 1


def test_release_repeated_after_a_lost_reply_is_no_loss(
    memory: Locks, monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    """[H15] A release that is repeated after the end of the lease is no loss, since its first attempt was in time."""
    grant = memory.lock("a", expire=60).acquire()
    backend, call = memory.engine.backend, memory.engine.backend.call

    def unheard(command: Any) -> Any:
        call(command)
        raise LockBackendError("no answer", outcome_unknown=True, transient=True)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "call", unheard)
        with pytest.raises(LockBackendError):
            grant.release()
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 61)
    grant.release()
    assert [event.confirmed for event in events if isinstance(event, Released)] == [False]
    assert not [event for event in events if isinstance(event, Lost)]


def test_garbage_collection_inside_the_mutexes_ends_blocks_and_runs_jobs(memory: Locks) -> None:
    """[H13] The garbage collector closes an abandoned generator at any point of the code: its release needs the same
    mutexes in the same thread. So does a job that a finalizer passes to the maintenance thread."""
    done = threading.Event()

    class Cycle:
        def __init__(self, of: object) -> None:
            self.cycle = self, of

        def __del__(self) -> None:
            probes.run_in_background(memory, done.set)

    def work() -> Iterator[None]:
        with memory.lock("a"):
            yield

    running = work()
    next(running)
    cycle = [Cycle(running)]
    del running
    with probes.mutexes_held(memory):
        cycle.clear()
        gc.collect()
    assert done.wait(20)
    assert not memory.lock("a").locked()


def test_block_that_outlives_its_lease_ends_with_its_own_grant(memory: Locks) -> None:
    """[L1] [L4] It ends inside another block of the same key, which keeps its lock."""

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


def test_timers_of_released_locks_are_forgotten(memory: Locks) -> None:
    """[H16] Thousands of locks with `on_lost`, released long before their leases end, leave no timers."""
    for _ in range(3000):
        with memory.lock("a", expire=3600, on_lost=print):
            pass
    memory.engine.wait_until_idle(20)
    assert probes.timer_count(memory) < 300


def test_surplus_idle_connections_are_closed_one_by_one(open_locks: Open, redis_url: str) -> None:
    """[H24] The pool is a stack: connections at its bottom would stay open for ever, with an old password."""
    client = open_locks(redis_url, OPTIONS={"max_connection_age": 0.3})
    probes.add_idle_connections(client, 10)
    time.sleep(0.4)
    for _ in range(12):
        with client.lock("a", expire=5):
            pass
    assert probes.idle_connection_count(client) == 1


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_on_a_closed_connection_logs_no_warning(
    open_locks: Open, redis_url: str, direct: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """[H24] If the server's timeout closes an idle connection between two renewals, the renewal is repeated at once,
    without a warning."""
    with open_locks(redis_url).lock("a", expire=LEASE, renew=True) as grant:
        for _ in range(4):
            direct.client_kill_filter(_type="normal", skipme=True)
            renewed(grant)
    assert "couldn't be renewed" not in caplog.text

"""`django_redis_locks.testing`: helpers for the tests of projects."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings
from freezegun import freeze_time

from django_redis_locks import InvalidLockBackend, LockAlreadyHeld, LockLost, LockNotAcquired, locks, redis_lock
from django_redis_locks.signals import lock_acquired
from django_redis_locks.testing import (
    ManualClock,
    assert_locked,
    assert_no_locks_held,
    assert_not_locked,
    capture_locks,
    hold_lock,
    override_locks,
)
from tests.probes.django import events, run_in_maintenance_thread, waiters

ROOT = Path(__file__).parent.parent.parent


@redis_lock(key="order:{pk}")
def charge(pk: int) -> str:
    return "charged"


@redis_lock(key="order:{pk}")
async def acharge(pk: int) -> str:
    return "charged"


# hold_lock


def test_hold_lock_refuses_the_thread_of_the_test(store: str) -> None:
    """As if another process held the lock: not with LockAlreadyHeld. In threads and coroutines, by both kinds of
    blocks."""

    async def refused() -> None:
        for call in (acharge(1), asyncio.create_task(acharge(1))):
            with pytest.raises(LockNotAcquired):
                await call
        assert_locked("order:1")

    async def scenario() -> None:
        with hold_lock("order:1"):
            await refused()
        async with hold_lock("order:1"):
            await refused()
        assert await acharge(1) == "charged"

    with hold_lock("order:1") as grant:
        assert grant.held
        for call in (lambda: charge(1), locks.lock("order:1", wait=0).acquire):
            with pytest.raises(LockNotAcquired):
                call()
        assert charge(2) == "charged"
    assert charge(1) == "charged"
    asyncio.run(scenario())


def test_hold_lock_of_a_busy_lock_raises_at_once(redis_locks: str) -> None:
    """If it waited, the test would hang."""
    with locks.lock("order:1"), pytest.raises(AssertionError, match=r"'order:1' can't be held.*MainThread"):
        hold_lock("order:1", wait=60).__enter__()


def test_hold_lock_ends_after_a_force_release_or_an_exception(redis_locks: str) -> None:
    """So does `capture_locks`."""
    before = len(lock_acquired.receivers)

    async def scenario() -> None:
        async with hold_lock("order:1"):
            await locks.lock("order:1").aforce_release()
            raise LookupError

    for how in (hold_lock("order:1"), nullcontext()):
        with pytest.raises(LookupError), capture_locks(), how as held:  # noqa: PT012
            if held is None:
                asyncio.run(scenario())
            locks.lock("order:1").force_release()
            raise LookupError
        assert_not_locked("order:1")
        assert len(lock_acquired.receivers) == before


# Assertions


def test_assert_locked_names_what_is_held(redis_locks: str) -> None:
    assert_not_locked("order:1")
    with pytest.raises(AssertionError, match=r"'order:1' of the alias 'default' isn't held; held is nothing\."):
        assert_locked("order:1")
    with locks.lock("order:1"):
        assert_locked("order:1")
        with pytest.raises(AssertionError, match="MainThread holds 'order:1'"):
            assert_not_locked("order:1")
        with pytest.raises(AssertionError, match=r"'order:2' .*isn't held; held is 'order:1'"):
            assert_locked("order:2")


def test_assert_no_locks_held_names_what_is_left(store: str) -> None:
    """By any thread or task of this process; not by other processes, and not cool-downs."""
    redis_lock(key="sms", expire=20, auto_release=False)(lambda: "sent")()
    assert_no_locks_held()
    grant = locks.lock("order:1").acquire()
    with pytest.raises(AssertionError, match="left held: 'order:1' of the alias 'default'"):
        assert_no_locks_held()
    grant.release()
    with hold_lock("order:1"), pytest.raises(AssertionError, match="order:1"):
        assert_no_locks_held()
    assert_no_locks_held()
    locks.lock("sms").force_release()


def test_override_locks_sends_no_loss_of_locks_that_were_left_held(manual_clock: ManualClock) -> None:
    """Neither of locks nor of records: otherwise their renewals would report a loss in the next test."""
    with capture_locks() as received:
        with override_locks():
            left = (
                locks.lock("order:1", expire=30, renew=True).acquire(),
                locks.record("job:1").put(None, {}, renew=True),
            )
        manual_clock.advance(31)
    assert not received.lost, left


# capture_locks


def test_capture_locks_has_the_events_in_order(store: str) -> None:
    with capture_locks() as received:
        charge(1)
        with hold_lock("order:2"), pytest.raises(LockNotAcquired):
            charge(2)
        with pytest.raises(LockLost), locks.lock("order:3"):
            locks.lock("order:3").force_release(reason="test")
    charge(4)
    assert received.acquired == ["order:1", "order:3"]
    assert received.contended == ["order:2"]
    assert received.released == ["order:1"]
    assert received.lost == received.force_released == ["order:3"]
    assert [type(event) for event in received][:3] == [events.Acquired, events.Released, events.Contended]


def test_capture_locks_sees_other_threads_and_one_alias(memory_locks: Any, settings: Any) -> None:
    memory_locks()
    settings.REDIS_LOCKS = {**settings.REDIS_LOCKS, "payments": settings.REDIS_LOCKS["default"]}
    with capture_locks("payments") as received, locks.lock("order:1"):
        thread = threading.Thread(target=lambda: locks["payments"].lock("card:2").acquire().release())
        thread.start()
        thread.join(10)
    assert received.acquired == received.released == ["card:2"]


# override_locks

NOWHERE = {"LOCATION": "redis://nowhere.invalid:1/0"}


@pytest.fixture
def servers(settings: Any) -> None:
    """Aliases of unreachable servers; the last two have the same server."""
    settings.REDIS_LOCKS = {
        "default": {**NOWHERE, "WAIT": 0, "OPTIONS": {"username": "a"}},
        "payments": {"LOCATION": "redis://nowhere.invalid:2/0"},
        "shop": {"LOCATION": "redis://nowhere.invalid:2/0", "EXPIRE": 5},
    }


def test_override_locks_keeps_all_aliases_in_memory(servers: None) -> None:
    """Aliases of one server share locks. Other aliases, and an inner override, have separate ones."""
    with override_locks(), locks.lock("a"), locks["payments"].lock("a"):
        with pytest.raises(LockAlreadyHeld):
            locks["shop"].lock("a").acquire()
        assert locks["default"].settings.wait == 0
        assert locks["shop"].settings.lease == 5000
        with override_locks(EXPIRE=7), locks.lock("a", wait=0):
            assert locks["default"].settings.lease == locks["shop"].settings.lease == 7000
        assert_locked("a")
    with pytest.raises(ImproperlyConfigured, match="COLOUR"):
        override_locks(COLOUR=1).__enter__()
    assert "nowhere" in locks["default"].settings.location


def test_override_locks_that_ends_before_an_inner_one_restores_the_settings(settings: Any) -> None:
    """As with pytest-django's `settings`, if it was requested before `memory_locks`."""
    settings.REDIS_LOCKS = None
    plain, other = override_locks(), override_settings(LANGUAGES=[])
    plain.enable()
    other.enable()
    with locks.lock("a"):
        plain.disable()
        other.disable()
    assert django_settings.REDIS_LOCKS is None
    with pytest.raises(InvalidLockBackend):
        locks.lock("a")


@override_locks()
def decorated() -> None:
    charge(1)
    locks.lock("left").acquire()


@override_locks()
async def adecorated() -> None:
    await acharge(1)
    await locks.lock("left").aacquire()


def test_override_locks_decorates_functions_and_coroutines(servers: None) -> None:
    """Each call begins without held locks."""
    for _ in range(2):
        decorated()
        asyncio.run(adecorated())


def test_override_locks_drops_held_locks_without_a_signal(servers: None) -> None:
    """[D10] Otherwise their renewal would report a loss during another test."""
    with capture_locks() as received, ManualClock() as clock:
        with override_locks():
            left = locks.lock("a", expire=6, renew=True).acquire()
        with override_locks(), locks.lock("a", wait=0):
            clock.advance(20)
    assert received.lost == []
    assert left.released
    left.release()


@override_locks(WAIT=0)
class EachTestHasFreshLocks(TestCase):
    """[D10] In a TestCase a lock is released at the end of its call, and a test starts without locks of the one
    before."""

    def test_first_function_of_the_class(self) -> None:
        self.scenario()

    def test_second_function_of_the_class(self) -> None:
        self.scenario()

    async def test_coroutine_of_the_class(self) -> None:
        async with locks.lock("left"):
            assert_locked("left")

    def scenario(self) -> None:
        with transaction.atomic():
            assert charge(1) == "charged"
            assert_not_locked("order:1")
        locks.lock("left").acquire()
        with hold_lock("order:1"), self.assertRaises(LockNotAcquired):  # noqa: PT027 - a user's test
            charge(1)


@override_locks(WAIT=0)
class TransactionsHoldTheirLocks(TransactionTestCase):
    def test_lock_is_held_until_commit(self) -> None:
        with transaction.atomic():
            charge(1)
            assert_locked("order:1")
        assert_no_locks_held()

    def test_assert_no_locks_held_waits_for_a_rollback(self) -> None:
        """[D4] The maintenance thread releases the lock slightly later."""
        busy = threading.Event()
        with locks.lock("other"):  # starts the maintenance thread
            run_in_maintenance_thread(lambda: busy.wait(10))
        with suppress(ZeroDivisionError), transaction.atomic():
            charge(1)
            1 / 0  # noqa: B018
        threading.Timer(0.1, busy.set).start()
        assert_no_locks_held()
        assert_not_locked("order:1")


# Fixtures


def test_fixtures_work_in_a_separate_project(tmp_path: Path) -> None:
    """Locks in memory, captured events, and the error for a test that leaves a lock held."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["django_redis_locks.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from django.conf import settings
            settings.configure(REDIS_LOCKS={"default": {"LOCATION": "redis://nowhere.invalid:1/0", "WAIT": 0}})
            from django_redis_locks import locks

            @pytest.fixture(scope="session")
            def for_all():
                from django_redis_locks.testing import override_locks
                with override_locks(), locks.lock("session"):
                    yield

            def test_left(no_locks_left, memory_locks):
                locks.lock("a").acquire()

            def test_after_it(memory_locks, no_locks_left):
                with locks.lock("a"):
                    pass

            def test_captured(memory_locks, captured_locks):
                with locks.lock("a"):
                    assert captured_locks.acquired == ["a"]

            def test_others(for_all, no_locks_left):
                pass
            """
        )
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        *["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:django", "."],
    ]
    path = {"PYTHONPATH": f"{ROOT}"}
    done = subprocess.run(command, cwd=tmp_path, env=path, check=False, capture_output=True, text=True)
    assert "4 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "Locks are left held: 'a' of the alias 'default'" in done.stdout
    assert "ERROR test_it.py::test_left" in done.stdout


# ManualClock


HOUR = 3600


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_wait_in_the_test_thread_moves_the_manual_clock_to_its_end(manual_clock: ManualClock) -> None:
    begin = manual_clock.now()
    with hold_lock("import"), pytest.raises(LockNotAcquired):
        locks.lock("import", wait=25).acquire()
    assert manual_clock.now() - begin == pytest.approx(25, abs=0.01)


def test_waiting_threads_get_the_lock_when_a_lease_ends(manual_clock: ManualClock, pool: ThreadPoolExecutor) -> None:
    """Without a notification: the waiters poll and find the key free."""
    begin = manual_clock.now()
    locks.lock("import", expire=30).acquire()
    entered: list[float] = []

    def enter() -> None:
        with locks.lock("import", wait=HOUR):
            entered.append(manual_clock.now())

    calls = [pool.submit(enter) for _ in range(3)]
    while waiters("import") == 0:
        pass
    manual_clock.advance(29)
    assert entered == []
    manual_clock.advance(4)
    for call in calls:
        call.result(10)
    assert 30 <= entered[0] - begin <= 32.2, "a poll interval later at most"


def test_waiting_tasks_time_out_acquire_or_are_cancelled(manual_clock: ManualClock) -> None:
    """A cancelled task leaves no queue entry."""

    async def scenario() -> None:
        lock = locks.lock("import")
        async with hold_lock("import"):
            late, cancelled = (asyncio.create_task(lock.aacquire(timeout=25)) for _ in range(2))
            await manual_clock.aadvance(1)
            cancelled.cancel()
            await manual_clock.aadvance(23.9)
            assert cancelled.cancelled()
            assert not late.done()
            served = asyncio.create_task(lock.aacquire(timeout=25))
            await manual_clock.aadvance(0.2)
            assert late.done()
            assert await late is None
        grant = await served
        await manual_clock.aadvance(HOUR / 2)
        await grant.aensure_held(confirm=True)
        await grant.arelease()
        assert await lock.aacquire(timeout=0)

    asyncio.run(scenario())


def test_waiters_of_other_threads_time_out_when_time_has_passed(
    manual_clock: ManualClock, pool: ThreadPoolExecutor
) -> None:
    """A thread, and a task in a loop of another thread, even while that loop ends."""

    async def wait_for_lock() -> object:
        return await locks.lock("import").aacquire(timeout=25)

    with hold_lock("import"):
        for call in (lambda: locks.lock("import").acquire(timeout=25), lambda: asyncio.run(wait_for_lock())):
            waiter = pool.submit(call)
            while locks.lock("import").lock_id not in locks["default"].engine.queued:
                pass
            manual_clock.advance(24)
            assert not waiter.done()
            manual_clock.advance(2)
            assert waiter.result(10) is None


def test_manual_clock_wins_over_frozen_time(manual_clock: ManualClock) -> None:
    """[H14] With freezegun, frozen or ticking, leases follow the manual clock only."""
    with freeze_time("2012-01-14") as frozen:
        grant = locks.lock("import", expire=30).acquire()
        frozen.tick(60)
        assert not grant.lost
        assert datetime.now() == datetime(2012, 1, 14, 0, 1)  # noqa: DTZ001, DTZ005 - freezegun's time has no zone
        manual_clock.advance(31)
        assert locks.lock("import").acquire(timeout=0)


def test_real_time_goes_on_after_the_block() -> None:
    with override_locks():
        with ManualClock() as clock:
            clock.advance(HOUR)
            for seconds in (-1, float("nan")):
                with pytest.raises(ValueError, match="doesn't go back"):
                    clock.advance(seconds)
        with locks.lock("import", expire=30, renew=True) as grant:
            assert 29 < grant.remaining() <= 30

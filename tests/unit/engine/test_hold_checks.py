"""After a forced release a process confirms its holds in the store; its channels are subscribed while it renews."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from django_redis_locks import Lock, locks
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.core.commands import Command
from django_redis_locks.core.keys import LockId
from django_redis_locks.engine.engine import Engine
from django_redis_locks.engine.hold_checks import HoldChecks
from django_redis_locks.engine.renewal_schedule import RenewalSchedule, no_renewal
from tests.forks import in_child
from tests.unit.core.holds import a_hold


class Store:
    """A store without holds that records the tokens of the requests."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def call_many(self, commands: list[Command[Any]], timeout: float) -> list[Any]:
        self.asked += [command.args.token for command in commands]
        return [[0]] * len(commands)


def hold_checks_of(schedule: RenewalSchedule, store: Any, opened: list[str] | None = None) -> HoldChecks:
    return HoldChecks(store, locks["default"].engine, schedule, [].append if opened is None else opened.append)


def test_confirmation_requests_only_the_live_holds_of_this_process(memory_lock: Lock) -> None:
    """[E15] [H18] Not those that a forked child inherited, nor released ones, nor those of another alias on the same
    server, which its own maintenance thread confirms."""
    store, held, schedule = Store(), memory_lock.acquire(), RenewalSchedule()
    schedule.add(held.hold, no_renewal, 60_000, 0.0, 60.0)  # as a fixed lease has it in a crowded registry
    hold_checks = hold_checks_of(schedule, store)
    assert hold_checks.request(memory_lock.lock_id)
    assert hold_checks.find_lost(1.0) == [held.hold]
    assert store.asked == [held.hold.token]
    schedule.remove(held.hold)
    other = HoldChecks(store, Engine(MemoryBackend("")), RenewalSchedule(), [].append)
    assert other.request(memory_lock.lock_id)
    assert other.find_lost(1.0) == []

    def child() -> None:
        assert hold_checks.request(memory_lock.lock_id)
        assert hold_checks.find_lost(1.0) == []

    in_child(child)
    held.release()
    assert not hold_checks.request(memory_lock.lock_id)
    assert not hold_checks.request(LockId("elsewhere", "lock:{0}:k:strangers"))


def test_inboxes_are_opened_for_each_prefix_while_something_is_renewed() -> None:
    """[E15] One second after the first renewal was planned, and every ten seconds: a channel may have been closed."""
    schedule, opened = RenewalSchedule(), list[str]()
    hold_checks = hold_checks_of(schedule, Store(), opened)
    holds = [a_hold(LockId("store", f"{prefix}:{{0}}:k:a"), 100.0, renew_for=60.0) for prefix in ("lock", "shop")]
    for hold in holds:
        schedule.add(hold, lambda token, lease: Command("", (), (), bool), 9000, 100.0, 3.0)
    assert hold_checks.plan_inbox(holds[0]) == hold_checks.due == 101.0
    hold_checks.open_inboxes(101.0)
    assert sorted(opened) == ["lock:{0}:inbox:", "shop:{0}:inbox:"]
    assert hold_checks.due == 111.0
    for hold in holds:
        schedule.remove(hold)
    hold_checks.open_inboxes(111.0)
    assert hold_checks.due > 1e9


@pytest.fixture
def memory_lock(settings: Any) -> Lock:
    settings.REDIS_LOCKS = {
        "default": {
            "BACKEND": "django_redis_locks.backends.memory.MemoryBackend",
            "LOCATION": f"hold_checks {os.getpid()}",
        }
    }
    return locks.lock(f"of {threading.get_ident()}")

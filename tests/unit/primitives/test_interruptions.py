"""An exception at any step of an acquire or a release leaves nothing behind, in threads and tasks."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from django_redis_locks import LockBackendError, LockNotAcquired
from django_redis_locks.core.owners import running_loop
from django_redis_locks.core.registry import registry
from tests.unit.primitives.scenario import Process, Scenario, VirtualClock

SetUp = Callable[[Scenario, Any], Callable[[Process], Any] | None]
"""Sets up a scenario for the caller's loop. Returns a function to call while the caller holds the lock, or None."""


def other_process_releases(scenario: Scenario, loop: Any) -> None:
    hold = scenario.other.hold()
    scenario.process.waits += [lambda: None, lambda: scenario.other.free(hold)]


def outcomes(command: str, *outcomes: str) -> SetUp:
    def set_up(scenario: Scenario, loop: Any) -> None:
        scenario.process.backend.outcomes[command] = list(outcomes)

    return set_up


def fair(set_up: SetUp) -> SetUp:
    def set_up_fair(scenario: Scenario, loop: Any) -> Callable[[Process], Any] | None:
        scenario.process.fair = scenario.other.fair = True
        return set_up(scenario, loop)

    return set_up_fair


def busy_after_a_late_request(scenario: Scenario, loop: Any) -> None:
    other_process_releases(scenario, loop)
    scenario.process.backend.outcomes[f"lock/acquire{'_fair' if scenario.process.fair else ''}"] = ["late"]


def handed_over(scenario: Scenario, loop: Any, reserved_fences: int = 0) -> None:
    process = scenario.process
    hold = process.hold(loop)
    hold.reserved_fences = reserved_fences
    process.waits += [lambda: None, lambda: process.free(hold)]


def handed_over_with_reserved_fence(scenario: Scenario, loop: Any) -> None:
    handed_over(scenario, loop, reserved_fences=3)


def freed_by_force_after_handover(scenario: Scenario, loop: Any) -> None:
    handed_over(scenario, loop)
    scenario.process.waits += [lambda: None]
    hand_over = scenario.process.waits.pop(1)
    scenario.process.waits.insert(1, lambda: (hand_over(), scenario.other.lock().force_release()))


def hands_over(scenario: Scenario, loop: Any) -> Callable[[Process], Any]:
    return lambda process: process.add_waiter(loop)


def requeues(scenario: Scenario, loop: Any) -> Callable[[Process], Any]:
    def add_waiter(process: Process) -> Any:
        (grant,) = registry.at(process.lock().lock_id)
        grant.hold.hand_overs = 16
        return process.add_waiter(loop)

    return add_waiter


SCENARIOS: dict[str, SetUp] = {
    "free": outcomes("lock/acquire"),
    "released during the wait": other_process_releases,
    "a lost reply": outcomes("lock/acquire", "lost"),
    "a late request": outcomes("lock/acquire", "late"),
    "a late request, then busy": busy_after_a_late_request,
    "down": outcomes("lock/acquire", *["down"] * 20),
    "handed over": handed_over,
    "handed over with a reserved fence": handed_over_with_reserved_fence,
    "freed by force after the hand-over": freed_by_force_after_handover,
    "handed over to a waiter": hands_over,
    "requeued after the limit of hand-overs": requeues,
    "fair": fair(outcomes("lock/acquire_fair")),
    "fair, released during the wait": fair(other_process_releases),
    "fair, a late request, then busy": fair(busy_after_a_late_request),
    "fair, with a waiter": fair(hands_over),
    "released with a lost reply": outcomes("lock/release", "lost"),
    "released with a late request": outcomes("lock/release", "late"),
    "released in an outage": outcomes("lock/release", "down"),
}


def in_thread(scenario: Scenario, set_up: SetUp) -> None:
    while_held = set_up(scenario, None)
    waiter = None
    try:
        grant = scenario.process.lock().acquire(timeout=3)
        if grant is not None:
            waiter = while_held and while_held(scenario.process)
            grant.release()
    finally:
        if waiter is not None:
            scenario.process.remove_waiter(waiter)


def in_task(scenario: Scenario, set_up: SetUp) -> None:
    async def main() -> None:
        while_held = set_up(scenario, running_loop())
        waiter = None
        try:
            grant = await scenario.process.lock().aacquire(timeout=3)
            if grant is not None:
                waiter = while_held and while_held(scenario.process)
                await grant.arelease()
        finally:
            if waiter is not None:
                scenario.process.remove_waiter(waiter)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def blocking_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the callers around the task under test to block its loop."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


def run_scenario(
    time: VirtualClock, drive: Any, set_up: SetUp, interruption: Any = None
) -> tuple[Scenario, BaseException | None]:
    scenario = Scenario(time)
    scenario.process.interruption = interruption
    try:
        drive(scenario, set_up)
    except BaseException as error:  # noqa: BLE001 - judged
        return scenario, error
    return scenario, None


@pytest.mark.parametrize("set_up", SCENARIOS.values(), ids=SCENARIOS)
def test_sync_and_async_methods_perform_the_same_effects(set_up: SetUp, time: VirtualClock) -> None:
    """[F25] acquire and aacquire, release and arelease."""
    (sync, error), (task, other) = run_scenario(time, in_thread, set_up), run_scenario(time, in_task, set_up)
    assert (sync.process.effects, repr(error)) == (task.process.effects, repr(other))
    assert len(sync.process.effects) >= 4
    assert sync.leftovers() == task.leftovers() == []


@pytest.mark.parametrize("drive", [in_thread, in_task], ids=["sync", "async"])
@pytest.mark.parametrize("set_up", SCENARIOS.values(), ids=SCENARIOS)
def test_exception_at_any_step_leaves_nothing_behind(drive: Any, set_up: SetUp, time: VirtualClock) -> None:
    """[L16] [H3] [H21] [X2] Before or after each effect: no waiter, no renewal, no token without an owner, no grant.
    Tasks are also cancelled."""
    uncontended, _ = run_scenario(time, drive, set_up)
    errors = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)[: 2 + (drive is in_task)]
    for number, after, kind in itertools.product(range(len(uncontended.process.effects)), (False, True), errors):
        error = kind(number)
        scenario, raised = run_scenario(time, drive, set_up, (number, after, error))
        where = f"{kind.__name__} {'after' if after else 'before'} {number} of {scenario.process.effects}"
        assert raised is error or (raised and error in (raised.__context__, raised.__cause__)), where
        assert scenario.leftovers() == [], where


@pytest.mark.parametrize("call", ["core.grant.running_loop", "primitives.shared.release._required_grant"])
def test_release_interrupted_before_its_first_effect_leaves_nothing(
    call: str, time: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L16]"""
    scenario = Scenario(time)
    lock = scenario.process.lock()
    lock.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(f"django_redis_locks.{call}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lock.release()
    assert scenario.leftovers() == []


def test_release_after_an_interrupted_one_reports_no_loss(time: VirtualClock) -> None:
    """[L16] The maintenance thread has freed the lock in between."""
    scenario = Scenario(time)
    process = scenario.process
    grant = process.lock().acquire()
    process.interruption = len(process.effects), False, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        grant.release()
    process.wait_until_idle()
    grant.release()
    assert not grant.lost


def test_failed_acquire_keeps_nothing_of_its_caller(time: VirtualClock) -> None:
    """Neither its local variables nor the request wait for the garbage collector."""
    scenario = Scenario(time)
    scenario.other.hold()

    def caller() -> weakref.ref[Any]:
        local = set[Any]()
        with suppress(LockNotAcquired):
            scenario.process.lock(wait=0).acquire()
        return weakref.ref(local)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_failed_write_of_a_record_keeps_nothing_of_its_caller(time: VirtualClock) -> None:
    """Also if the store gave no reply on the fast path."""
    scenario = Scenario(time)
    scenario.process.backend.outcomes["record/put"] = ["refused"]

    def caller() -> weakref.ref[Any]:
        local = set[Any]()
        with suppress(LockBackendError):
            scenario.process.locks.record("a").put(None, {}, expire=5)
        return weakref.ref(local)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()

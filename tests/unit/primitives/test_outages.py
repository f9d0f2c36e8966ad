"""How long commands are retried, and how a server that is known to be down fails all callers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_redis_locks import LockBackendError, LockLost
from django_redis_locks.client import Locks
from django_redis_locks.core.commands import Command
from django_redis_locks.core.effects import ReportUnreachable, Sleep
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.runner import run
from django_redis_locks.primitives.shared.index import entries
from django_redis_locks.primitives.shared.load_commands import clear_command
from django_redis_locks.primitives.shared.retry import retry_command, retry_commands
from tests.unit.primitives.scenario import Scenario

DOWN = ["down"] * 99

CALLS: dict[str, tuple[str, Callable[[Any, Any], object]]] = {
    "re-entry": ("lock/renew", lambda lock, grant: lock.acquire(timeout=0)),
    "release": ("lock/release", lambda lock, grant: grant.release()),
    "extend": ("lock/renew", lambda lock, grant: grant.extend(20)),
    "confirmation": ("lock/renew", lambda lock, grant: grant.ensure_held(confirm=True)),
    "holder": ("lock/inspect", lambda lock, grant: lock.holder()),
    "forced release": ("lock/force_release", lambda lock, grant: lock.force_release()),
    "listing": ("index/page", lambda lock, grant: run(entries("lock:{0}:index", "held", 0, 9), lock.performer)),
    "record": ("record/put", lambda lock, grant: lock.performer.locks.record("r").put(None, {})),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("outcome", ["lost", "dropped", "down", "loading"])
def test_calls_succeed_after_one_lost_reply(scenario: Scenario, call: str, outcome: str) -> None:
    """[E12] Each command may be repeated: the call retries within `BACKEND_WAIT`."""
    command, make_call = CALLS[call]
    scenario.process.engine.locks = scenario.process.locks
    grant = scenario.process.lock(expire=5, reentrant=True).acquire()
    scenario.process.backend.outcomes[command] = [outcome]
    make_call(scenario.process.lock(expire=20, reentrant=True), grant)
    assert scenario.process.effects.count(command) == 2


def test_release_is_retried_until_the_lease_ends(scenario: Scenario) -> None:
    """[E12] Later it would raise LockLost in any case."""
    grant = scenario.process.lock(expire=1).acquire()
    scenario.process.backend.outcomes["lock/release"] = DOWN[:]
    with pytest.raises(LockLost, match="expired"):
        grant.release()
    assert scenario.time.time == pytest.approx(grant.hold.deadline)


@pytest.mark.parametrize("outcome", ["down", "loading"])
def test_open_lock_opens_after_backend_wait(scenario: Scenario, outcome: str) -> None:
    """[E18] Whether the store is unreachable or loading. A lock that isn't open waits for a loading store up to
    `wait`."""
    scenario.process.backend.outcomes["lock/acquire"] = [outcome] * 99
    begin = scenario.time.time
    assert scenario.process.lock(on_backend_error="open").acquire(timeout=30).fence is None
    assert scenario.time.time - begin == pytest.approx(2.0)


def test_server_that_is_down_fails_later_callers_at_once(scenario: Scenario) -> None:
    """[E18] After the first caller, no call of any kind sends a request. The first successful probe ends that."""
    process = scenario.process
    held = process.locks.lock("held").acquire()
    process.backend.outcomes["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    begin = scenario.time.time
    process.backend.outcomes.clear()
    calls: list[Callable[[], object]] = [
        process.lock(wait=60).acquire,
        process.locks.record("r").get,
        held.release,
        lambda: asyncio.run(process.lock(wait=60).aacquire()),
    ]
    process.effects.clear()
    for call in calls:
        with pytest.raises(LockBackendError, match="known to be down"):
            call()
    assert scenario.time.time == begin
    process.backend.outcomes["probe"] = ["down"]
    process.outage.probe()
    with pytest.raises(LockBackendError, match="known to be down"):
        process.lock().acquire()
    process.outage.probe()
    process.lock().acquire().release()
    held.release()


@pytest.mark.parametrize(
    ("awaits_failover", "pauses"), [(True, [0.05, 0.1, 0.2, 0.2, 0.2]), (False, [0.05, 0.1, 0.2, 0.4, 0.8])]
)
def test_pauses_are_short_while_a_failover_is_expected(awaits_failover: bool, pauses: list[float]) -> None:
    """A server that was replaced answers within the next 200 ms; one that is down isn't asked that often."""
    program = retry_command(clear_command("generation"))
    slept: list[float] = []
    effect = next(program)
    while len(slept) < 5:
        if isinstance(effect, Sleep):
            slept.append(effect.seconds)
            effect = next(program)
        elif isinstance(effect, Command):
            failure = LockBackendError("away", transient=True, unreachable=True, awaits_failover=awaits_failover)
            effect = program.throw(failure)
        else:
            effect = program.send(60.0)
    assert slept == pauses


def test_caller_with_a_longer_backend_wait_waits_for_a_server_that_is_down(scenario: Scenario) -> None:
    """[E18] The server counts as down after the shortest `BACKEND_WAIT`. Without a probe, a caller sends its
    request."""
    process = scenario.process
    process.backend.outcomes["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    process.backend.outcomes.clear()
    begin = scenario.time.time
    patient_client = Locks(replace(process.locks.settings, backend_wait=20.0), process.engine)
    patient_client.lock("b", wait=60).acquire().release()
    assert 1 < scenario.time.time - begin < 10
    process.lock().acquire().release()


def test_one_caller_sends_a_request_if_the_probes_have_stopped(scenario: Scenario) -> None:
    """[E18] The probing thread may have ended; the other callers still fail at once."""
    process = scenario.process
    process.backend.outcomes["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    scenario.time.time += 6
    for requests in (1, 0, 0):
        left = len(process.backend.outcomes["lock/acquire"])
        with pytest.raises(LockBackendError):
            process.lock().acquire()
        assert left - len(process.backend.outcomes["lock/acquire"]) == requests


def test_write_to_a_cache_is_sent_to_a_server_that_is_down(scenario: Scenario) -> None:
    """[S2] It invalidates loads, since the written value may be on another server, which is up."""
    process = scenario.process
    process.backend.outcomes["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    run(retry_command(clear_command("generation")), process.engine)
    process.backend.outcomes.clear()
    process.lock().acquire().release()


def test_repeated_force_release_frees_no_later_hold(scenario: Scenario) -> None:
    """[E12] The first request freed the lock, and another caller has acquired it since."""
    scenario.other.hold()
    later: list[Hold] = []
    scenario.process.backend.outcomes["lock/force_release"] = ["lost"]
    scenario.process.engine.handlers[Sleep] = lambda effect: later.append(scenario.other.hold())
    assert scenario.process.lock().force_release()
    holder = scenario.process.lock().holder()
    assert holder is not None
    assert [hold.fence for hold in later] == [holder.fence]


@pytest.mark.parametrize("gap", [1.0, 60.0])
def test_failures_with_long_gaps_are_no_outage(scenario: Scenario, gap: float) -> None:
    """[E18] A server is known to be down after it was unreachable for `BACKEND_WAIT` without a gap."""
    outcomes = scenario.process.backend.outcomes["lock/acquire"] = []
    for _ in range(4):
        outcomes.append("down")
        with pytest.raises(LockBackendError):
            scenario.process.lock().acquire(timeout=0)
        scenario.time.time += gap
    if gap > 2:
        scenario.process.lock().acquire(timeout=0).release()
    else:
        with pytest.raises(LockBackendError, match="known to be down"):
            scenario.process.lock().acquire(timeout=0)


def test_forked_child_forgets_the_outage_of_its_parent(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """[E18] The probing thread exists only in the parent; C code may fork without Python's hooks."""
    scenario.process.backend.outcomes["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        scenario.process.lock().acquire()
    scenario.process.backend.outcomes.clear()
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    assert scenario.process.lock().acquire(timeout=0)


def test_part_that_is_away_is_not_asked_again_and_a_part_that_refuses_is() -> None:
    """Of commands that are sent together. If all parts are away, the first failure is raised."""
    commands = [Command("index/page", (f"i{number}",), None, lambda reply: reply) for number in range(3)]
    reasons: list[str] = []
    program = retry_commands(commands, unreachable=reasons)
    next(program)
    refused = LockBackendError("loading", transient=True)
    away = [LockBackendError("away", transient=True, unreachable=True) for _ in commands]
    assert type(program.send([1, refused, away[0]])) is Sleep
    assert program.send(None) is commands[1]
    assert type(program.send(2)) is ReportUnreachable
    with pytest.raises(StopIteration) as end:
        program.send(30.0)
    assert (end.value.value, reasons) == ([1, 2, None], ["away"])
    program = retry_commands(commands, unreachable=reasons)
    next(program)
    assert type(program.send(away)) is ReportUnreachable
    with pytest.raises(LockBackendError, match="away"):
        program.send(0.0)

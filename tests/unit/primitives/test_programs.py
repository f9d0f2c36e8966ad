"""The lock programs with replies that are lost, late or negative."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_redis_locks import Grant, LockBackendError, LockLost, LockNotAcquired
from django_redis_locks.core import events, owners
from django_redis_locks.core.commands import PARSE_ERRORS
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.core.queue_values import Attempt, HandedOverLock, QueuePosition
from django_redis_locks.core.runner import run
from django_redis_locks.core.tuning import DEFAULT, RESERVED_FENCES
from django_redis_locks.primitives.shared.acquire_program import _replace_token
from django_redis_locks.primitives.shared.extend import extending
from django_redis_locks.primitives.shared.mutex_steps import parse_acquire
from django_redis_locks.primitives.shared.requests import AcquireRequest, Busy, ForeignValue, Granted
from tests.unit.primitives.scenario import Scenario

NOW = 1000.0
END = NOW + validity(10_000)
"""The deadline of a hold that was acquired at the start of a test."""


def acquire(scenario: Scenario, timeout: float = 3.0, **options: Any) -> Grant:
    grant = scenario.process.lock(**{"renew": False, **options}).acquire(timeout=timeout)
    assert grant is not None
    return grant


def losses(emitted: list[events.Event]) -> list[str]:
    return [event.why for event in emitted if isinstance(event, events.Lost)]


# Acquire


@pytest.mark.parametrize(
    ("outcomes", "wait", "effects"),
    [
        (["lost"], 3.0, "acquire ReportUnreachable Sleep acquire"),
        (["late"], 3.0, "acquire ReportUnreachable Sleep acquire"),
        (["stale"], 0.0, "acquire acquire"),
        (["loading", "loading", "loading"], 3.0, "acquire Sleep acquire Sleep acquire Sleep acquire"),
    ],
)
def test_acquire_after_lost_replies_repeats_its_token(
    scenario: Scenario, outcomes: list[str], wait: float, effects: str
) -> None:
    """[H2] [L12] [H24] The reply "already held" counts as success; the deadline counts from the answered attempt, and a
    possible late copy is cleaned up after the release. Pauses double; a stale connection costs no pause."""
    scenario.process.backend.outcomes["lock/acquire"] = outcomes[:]
    grant = acquire(scenario, wait)
    assert scenario.process.effects == [f"lock/{name}" if name == "acquire" else name for name in effects.split()]
    assert grant.hold.outcome_unknown is ("loading" not in outcomes)
    pauses = sum(DEFAULT.min_retry_delay * 2**number for number in range(effects.count("Sleep")))
    assert grant.hold.deadline == pytest.approx(END + pauses)
    grant.release()
    assert scenario.process.effects[-1] == ("Cleanup" if grant.hold.outcome_unknown else "lock/release")
    assert scenario.leftovers() == []


@pytest.mark.parametrize(
    ("outcomes", "wait", "outcome_unknown", "seconds"),
    [
        (["lost"], 0.0, True, 0.0),
        (["dropped", *["down"] * 9], 1.0, True, 1.0),
        (["down"] * 9, 1.0, False, 1.0),
        (["down"] * 99, 8.0, False, 2.0),
        (["down"] * 99, -1, False, 2.0),
        (["loading"] * 99, 8.0, False, 8.0),
        (["refused"], 3.0, False, 0.0),
    ],
)
def test_acquire_without_a_reply_raises_and_cleans_up_its_token(
    scenario: Scenario, outcomes: list[str], wait: float, outcome_unknown: bool, seconds: float
) -> None:
    """[E18] [L16] [H2] At its deadline; after two seconds if the server is unreachable; at once after a permanent
    error."""
    scenario.process.backend.outcomes["lock/acquire"] = outcomes[:]
    with pytest.raises(LockBackendError) as caught:
        acquire(scenario, wait)
    assert (caught.value.key, caught.value.name, caught.value.alias) == ("a", "a", "default")
    assert caught.value.outcome_unknown is outcome_unknown
    assert scenario.time.time == pytest.approx(NOW + seconds)
    assert ("Cleanup" in scenario.process.effects) is outcome_unknown
    assert scenario.leftovers() == []


def test_reply_during_an_outage_restarts_its_time_limit(scenario: Scenario) -> None:
    """The two seconds of the next outage count from its own beginning."""
    scenario.other.hold(expire=50)
    scenario.process.backend.outcomes["lock/acquire"] = ["ok", "down", *["ok"] * 20, "down"]
    acquire(scenario, -1)
    assert scenario.process.effects.count("Sleep") == 2


def test_waiter_sleeps_through_the_last_part_of_a_millisecond_of_a_lease(scenario: Scenario) -> None:
    """The store says then that no millisecond is left, and the lock is held all the same."""
    scenario.other.hold(expire=50)
    scenario.time.time += 49.9998
    scenario.process.backend.outcomes["lock/acquire"] = ["ok"] * 9 + ["refused"]
    assert acquire(scenario, -1)


def test_open_lock_without_a_store_grants_without_protection(scenario: Scenario) -> None:
    """[F14] `open` applies only to a store that is down during the acquire."""
    scenario.process.backend.outcomes["lock/acquire"] = ["down"]
    grant = acquire(scenario, 0, on_backend_error="open")
    assert (grant.protected, grant.held, grant.fence) == (False, False, None)
    with pytest.raises(LockBackendError, match="no lock"):
        grant.ensure_held()
    grant.release()
    assert "lock/release" not in scenario.process.effects
    grant = acquire(scenario, 0, on_backend_error="open")
    scenario.other.lock().force_release()
    with pytest.raises(LockLost):
        grant.release()


def test_acquire_that_is_busy_after_a_lost_reply_uses_a_new_token(scenario: Scenario) -> None:
    """[H2] A late copy of the first request may still arrive: its token is cleaned up, but not the new one."""
    holder = scenario.other.hold()
    scenario.process.backend.outcomes["lock/acquire"] = ["late"]
    scenario.process.waits += [lambda: None, lambda: scenario.other.free(holder)]
    grant = acquire(scenario)
    assert not grant.hold.outcome_unknown
    scenario.process.wait_until_idle()
    grant.ensure_held(confirm=True)


def test_acquire_granted_after_its_lease_is_repeated_with_a_new_token(scenario: Scenario) -> None:
    """[H14] The lease of the first token has ended."""
    scenario.process.backend.delays = [10.0]
    grant = acquire(scenario, 60)
    assert grant.hold.deadline == END + 10
    scenario.process.wait_until_idle()
    grant.ensure_held(confirm=True)


def test_acquire_counts_its_lease_from_the_request(scenario: Scenario) -> None:
    """[H14] Minus the drift of the clocks. A free lock needs one command and no queue."""
    scenario.process.backend.delays = [0.25]
    grant = acquire(scenario)
    assert (grant.hold.deadline, grant.hold.state, grant.hold.outcome_unknown) == (END, State.HELD, False)
    assert scenario.process.effects == ["lock/acquire"]


def test_token_that_is_cleaned_up_is_not_requested_again(scenario: Scenario) -> None:
    """[H2] The cleanup would free the lock that is granted to it."""
    request = AcquireRequest(3.0, owners.current_owner(), None)
    token = request.token
    (cleanup,) = _replace_token(scenario.process.lock().spec, request)
    assert cleanup.delete.args.token == token != request.token


def test_hold_with_renewal_or_on_lost_is_watched(scenario: Scenario) -> None:
    """[L8] [H23] A fixed lease without on_lost needs no maintenance."""
    for options in ({"renew": True}, {"on_lost": print}, {}):
        acquire(scenario, **options).release()
        assert ("watch" in scenario.process.effects) is bool(options), options
        scenario.process.effects.clear()


@pytest.mark.parametrize("late", ["acquire", "aacquire"])
def test_acquire_with_a_reply_slower_than_the_lease_raises_LockBackendError(scenario: Scenario, late: str) -> None:
    """[E16] Not LockNotAcquired, which would say that the lock is held."""
    lock = scenario.process.lock(expire=1)
    scenario.process.backend.delays = [1.5]
    with pytest.raises(LockBackendError, match="longer than the lease of 1 s"):
        lock.acquire(timeout=0) if late == "acquire" else asyncio.run(lock.aacquire(timeout=0))
    scenario.process.backend.delays = [1.5]
    assert scenario.process.lock(expire=1, on_backend_error="open").acquire(timeout=0).fence is None
    scenario.other.hold()
    with pytest.raises(LockNotAcquired):
        scenario.process.lock(wait=0).acquire()


# Release


@pytest.mark.parametrize(
    ("outcomes", "seconds", "confirmed", "left"),
    [
        ([], 0.0, True, "lock/release"),
        (["stale"], 0.0, True, "Cleanup"),
        (["lost"], 0.0, False, "Cleanup"),
        (["lost"] * 9, 0.0, LockBackendError, "NotifyWaiters"),
        (["loading"] * 9, 0.0, LockBackendError, "NotifyWaiters"),
        (["down"], 10.0, "expired", "NotifyWaiters"),
        ([], 10.0, "expired", "lock/release"),
        (["taken"], 0.0, "taken", "lock/release"),
        (["taken", "stale"], 0.0, False, "Cleanup"),
        (["taken", "stale"], 10.0, "expired", "Cleanup"),
    ],
)
def test_release_reports_success_or_loss_by_the_reply(
    scenario: Scenario, emitted: list[events.Event], outcomes: list[str], seconds: float, confirmed: Any, left: str
) -> None:
    """[L2] [L3] [L14] [L15] [H15] Within the lease, "not held" is a loss, unless an earlier copy may have released it.
    After the lease the local clock decides, even without a reply. The maintenance thread completes unanswered
    releases."""
    grant = acquire(scenario)
    if "taken" in outcomes:
        scenario.other.lock().force_release()
    scenario.process.backend.outcomes["lock/release"] = [outcome for outcome in outcomes if outcome != "taken"]
    scenario.time.time += seconds
    emitted.clear()
    if isinstance(confirmed, bool):
        grant.release()
        assert [event.confirmed for event in emitted if isinstance(event, events.Released)] == [confirmed]
        assert grant.hold.state is State.GONE
    elif isinstance(confirmed, str):
        with pytest.raises(LockLost, match=confirmed):
            grant.release()
    else:
        with pytest.raises(confirmed):
            grant.release()
        assert grant.hold.state is State.RELEASING
    assert losses(emitted) == ([confirmed] if isinstance(confirmed, str) else [])
    assert scenario.process.effects[-1] == left


@pytest.mark.parametrize("settled", [True, False])
def test_second_release_accepts_the_cleanup_of_the_first(
    scenario: Scenario, emitted: list[events.Event], settled: bool
) -> None:
    """[L15] [H15] A grant can be released until a release was answered; "not held" then means that the cleanup did
    it."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/release"] = ["down"] * 9
    with pytest.raises(LockBackendError):
        grant.release()
    scenario.process.outage.probe()
    if settled:
        scenario.process.wait_until_idle()
    grant.release()
    assert grant.released
    assert [event.confirmed for event in emitted if isinstance(event, events.Released)] == [not settled]
    assert losses(emitted) == []


def test_lock_that_was_lost_and_reported_is_not_released(scenario: Scenario) -> None:
    """[L3] Whatever the store replies later."""
    grant = acquire(scenario)
    grant.hold.mark_lost("expired")
    with pytest.raises(LockLost):
        grant.release()


def test_extend_without_a_reply_keeps_the_deadline(scenario: Scenario) -> None:
    """After a reported loss, a positive reply doesn't revive the hold."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/renew"] = ["lost"] * 9
    with pytest.raises(LockBackendError):
        grant.extend(60)
    assert (grant.hold.deadline, grant.hold.state) == (END, State.HELD)
    scenario.process.outage.probe()
    grant.hold.mark_lost("expired")
    with pytest.raises(LockLost, match="expired"):
        run(extending(scenario.process.lock().spec, grant.hold, 60_000), scenario.process.engine)


def test_confirmation_of_a_lost_lock_raises_LockLost_once(scenario: Scenario, emitted: list[events.Event]) -> None:
    """[L3] The error has the reason, and one event is emitted."""
    grant = acquire(scenario)
    scenario.other.lock().force_release()
    for _ in range(2):
        with pytest.raises(LockLost, match="taken"):
            grant.ensure_held(confirm=True)
    assert losses(emitted) == ["taken"]


def test_with_block_ends_without_error_when_the_store_is_down(scenario: Scenario, emitted: list[events.Event]) -> None:
    """[F12] The block was protected until its end, and the release continues in the background."""
    scenario.process.backend.outcomes["lock/release"] = ["down"] * 9
    with scenario.process.lock():
        emitted.clear()
    assert [type(event) for event in emitted] == [events.BackendFailed]
    assert scenario.leftovers() == []


def test_force_release_after_a_lost_reply_wakes_local_waiters(scenario: Scenario) -> None:
    """[L24] [H3] The lost request may have freed the lock."""
    scenario.other.hold()
    for outcome, freed in (("stale", True), ("ok", False)):
        scenario.process.backend.outcomes["lock/force_release"] = [outcome]
        assert scenario.process.lock().force_release() is freed
        assert ("NotifyWaiters" in scenario.process.effects) is freed
        scenario.process.effects.clear()


# Hand-over


def acquire_by_handover(scenario: Scenario, hold: Hold, timeout: float = 3.0) -> Grant:
    """Acquire the lock that another caller of the process hands over while this one waits."""
    scenario.process.waits = [lambda: None, lambda: scenario.process.free(hold)]
    return acquire(scenario, timeout)


def test_release_to_a_local_waiter_sends_no_request(scenario: Scenario, emitted: list[events.Event]) -> None:
    """[H3] The waiter takes the token over, unless it may have vanished or may be cleaned up; sixteen times in a row
    while other processes wait [H4]. Otherwise the release wakes it."""

    def doubt(hold: Hold, how: str) -> None:
        match how:
            case "an unanswered acquire":
                hold.outcome_unknown = True
            case "an earlier release":
                hold.release_failed = True
            case "a loss":
                hold.loss_reason = "taken"
            case "the deadline":
                hold.deadline = NOW
            case "sixteen times":
                hold.hand_overs = DEFAULT.max_hand_overs

    for how in ("", "an unanswered acquire", "an earlier release", "a loss", "the deadline", "sixteen times"):
        scenario = Scenario(scenario.time)
        process = scenario.process
        waiter = process.add_waiter()
        grant = acquire(scenario, 0)
        doubt(grant.hold, how)
        process.effects.clear()
        scenario.time.time = NOW
        if how == "a loss":
            with pytest.raises(LockLost):
                grant.release()
        else:
            grant.release()
        assert ("lock/release" in process.effects) is bool(how), how
        assert waiter.queue.wakeups == (1 if how else 0), how
        process.remove_waiter(waiter)
        assert scenario.leftovers() == []
    assert losses(emitted) == []


@pytest.mark.parametrize("outcomes", [[], ["lost"]], ids=["answered", "lost answer"])
@pytest.mark.parametrize("gone", ["", "freed", "taken"])
def test_waiter_that_does_not_find_the_handed_over_lock_reports_it_as_vanished(
    scenario: Scenario, emitted: list[events.Event], outcomes: list[str], gone: str
) -> None:
    """[H3] [H15] As vanished, since it was released and so not surely lost; not after a lost reply, which may have been
    to its own acquire."""
    hold = scenario.process.hold()

    def hand_over() -> None:
        scenario.process.free(hold)
        if gone:
            scenario.other.lock().force_release()
        if gone == "taken":
            scenario.other.hold(expire=1)
        scenario.process.backend.outcomes["lock/acquire"] = outcomes[:]

    scenario.process.waits = [lambda: None, hand_over]
    grant = acquire(scenario)
    assert (grant.hold.token != hold.token, grant.fence > hold.fence) == (True, True)
    assert losses(emitted) == []
    assert len([event for event in emitted if isinstance(event, events.Vanished)]) == bool(gone and not outcomes)


def test_lock_that_an_attempt_without_reply_may_have_adopted_is_not_reported_as_vanished(
    scenario: Scenario, emitted: list[events.Event]
) -> None:
    """[H3] The store can't distinguish the two cases."""
    handed = HandedOverLock(scenario.process.hold(), lambda token: pytest.fail("nothing frees it"))
    handed.report_vanished()
    handed.rejected(Attempt())
    handed.report_vanished()
    assert len([event for event in emitted if isinstance(event, events.Vanished)]) == 1


def test_lock_adopted_without_a_request_keeps_token_and_lease_and_uses_a_reserved_fence(scenario: Scenario) -> None:
    """[H2] [H3] [H14] Its lease counts from the last request; its holder is stored by its renewal."""
    hold = scenario.process.hold()
    hold.reserved_fences, hold.hand_overs = 3, 1
    scenario.time.time += 0.01
    next_hold = acquire_by_handover(scenario, hold).hold
    assert (next_hold.token, next_hold.fence) == (hold.token, hold.fence + 1)
    assert (next_hold.confirmed_at, next_hold.since) == (NOW, NOW + 0.01)
    assert next_hold.deadline == NOW + 0.01 + validity(10_000)
    assert (next_hold.reserved_fences, next_hold.hand_overs) == (2, 2)


def test_handover_count_rises_only_while_other_processes_wait(scenario: Scenario) -> None:
    """[H4] Without other waiting processes, hand-overs aren't limited, and need no request."""
    for others in (True, False):
        scenario = Scenario(scenario.time)
        hold = scenario.process.hold()
        hold.hand_overs = 7
        if others:
            scenario.process.backend._store.enqueue(scenario.process.lock().keys.waiters, "another process's 1", 0)
        next_hold = acquire_by_handover(scenario, hold).hold
        assert (next_hold.hand_overs, next_hold.reserved_fences) == ((8, 0) if others else (0, RESERVED_FENCES))
        scenario.forget()


def test_reply_of_acquire_is_parsed() -> None:
    """In the form of Redis: large numbers as bytes."""
    for reply, verdict in (
        ([1, b"7", 1, 0, 0], Granted(7, True, QueuePosition(0, False))),
        ([1, b"7", 0, b"1700000000000001", 1], Granted(7, False, QueuePosition(1_700_000_000_000_001, True))),
        ([-1, b"a string"], ForeignValue("a string")),
    ):
        assert parse_acquire(reply) == verdict
    with pytest.raises(PARSE_ERRORS):
        parse_acquire(1)  # fences are larger
    busy = parse_acquire([0, 1500, b"7", b"1700000000000", b'["host",1,null,null]', b"1700000000000001", 1])
    assert isinstance(busy, Busy)
    assert (busy.lease_left, busy.position) == (1.5, QueuePosition(1_700_000_000_000_001, True, fence=7))
    assert busy.holder is not None
    assert (busy.holder.fence, busy.holder.since, busy.holder.host) == (7, 1_700_000_000.0, "host")
    assert parse_acquire([0, 1500, b"7", b"yesterday", b"", 0, 0]).holder is None  # it is busy all the same

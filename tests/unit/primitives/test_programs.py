"""What a lock makes of the answers that its store gives, loses, or gives too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_redis_locks import Grant, LockBackendError, LockLost, LockNotAcquired
from django_redis_locks.core import events
from django_redis_locks.core.commands import PARSE_ERRORS
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.core.queue_values import Attempt, HandedOverLock, QueuePosition
from django_redis_locks.core.runner import run
from django_redis_locks.core.tuning import DEFAULT, RESERVED_FENCES
from django_redis_locks.primitives.lock import parse_acquire
from django_redis_locks.primitives.shared.requests import Busy, ForeignValue, Granted
from tests.unit.primitives.scene import Scene

NOW = 1000.0
END = NOW + validity(10_000)
"""When a hold ends that was acquired at the beginning."""


def acquire(scene: Scene, timeout: float = 3.0, **options: Any) -> Grant:
    grant = scene.process.lock(**{"renew": False, **options}).acquire(timeout=timeout)
    assert grant is not None
    return grant


def losses(heard: list[events.Event]) -> list[str]:
    return [event.why for event in heard if isinstance(event, events.Lost)]


# Acquire


@pytest.mark.parametrize(
    ("fates", "wait", "effects"),
    [
        (["lost"], 3.0, "acquire ReportUnreachable Sleep acquire"),
        (["late"], 3.0, "acquire ReportUnreachable Sleep acquire"),
        (["stale"], 0.0, "acquire acquire"),
        (["loading", "loading", "loading"], 3.0, "acquire Sleep acquire Sleep acquire Sleep acquire"),
    ],
)
def test_acquire_after_unanswered_attempts_asks_with_its_token(
    scene: Scene, fates: list[str], wait: float, effects: str
) -> None:
    """[H2] [L12] [H24] "Already mine" is what success looks like; the deadline counts from the answered attempt, and a copy that
    may come late is swept after the release. Pauses double, and a stale connection costs none."""
    scene.process.backend.fates["lock/acquire"] = fates[:]
    grant = acquire(scene, wait)
    assert scene.process.effects == [f"lock/{name}" if name == "acquire" else name for name in effects.split()]
    assert grant.hold.outcome_unknown is ("loading" not in fates)
    pauses = sum(DEFAULT.first_retry * 2**number for number in range(effects.count("Sleep")))
    assert grant.hold.deadline == pytest.approx(END + pauses)
    grant.release()
    assert scene.process.effects[-1] == ("Cleanup" if grant.hold.outcome_unknown else "lock/release")
    assert scene.left_behind() == []


@pytest.mark.parametrize(
    ("fates", "wait", "outcome_unknown", "seconds"),
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
def test_acquire_without_an_answer_raises_and_sweeps_what_it_may_have_taken(
    scene: Scene, fates: list[str], wait: float, outcome_unknown: bool, seconds: float
) -> None:
    """[E18] [L16] [H2] At its deadline, after two seconds if the server can't be reached, or at once if it refuses for good."""
    scene.process.backend.fates["lock/acquire"] = fates[:]
    with pytest.raises(LockBackendError) as caught:
        acquire(scene, wait)
    assert (caught.value.key, caught.value.name, caught.value.alias) == ("a", "a", "default")
    assert caught.value.outcome_unknown is outcome_unknown
    assert scene.time.time == pytest.approx(NOW + seconds)
    assert ("Cleanup" in scene.process.effects) is outcome_unknown
    assert scene.left_behind() == []


def test_answer_ends_the_trouble_of_an_outage(scene: Scene) -> None:
    """The two seconds of the next one begin anew."""
    scene.other.hold(expire=50)
    scene.process.backend.fates["lock/acquire"] = ["ok", "down", *["ok"] * 20, "down"]
    acquire(scene, -1)
    assert scene.process.effects.count("Sleep") == 2


def test_open_lock_without_a_store_grants_without_protection(scene: Scene) -> None:
    """[F14] Open is about a store that is down at the beginning only."""
    scene.process.backend.fates["lock/acquire"] = ["down"]
    grant = acquire(scene, 0, on_backend_error="open")
    assert (grant.protected, grant.held, grant.fence) == (False, False, None)
    with pytest.raises(LockBackendError, match="no lock"):
        grant.ensure_held()
    grant.release()
    assert "lock/release" not in scene.process.effects
    grant = acquire(scene, 0, on_backend_error="open")
    scene.other.lock().force_release()
    with pytest.raises(LockLost):
        grant.release()


def test_acquire_that_is_busy_after_a_lost_answer_takes_a_new_token(scene: Scene) -> None:
    """[H2] A late copy of the first question may still come: it is swept, and what is granted later isn't."""
    holder = scene.other.hold()
    scene.process.backend.fates["lock/acquire"] = ["late"]
    scene.process.waits += [lambda: None, lambda: scene.other.free(holder)]
    grant = acquire(scene)
    assert not grant.hold.outcome_unknown
    scene.process.wait_until_idle()
    grant.ensure_held(confirm=True)


def test_acquire_granted_after_its_lease_asks_again_with_another_token(scene: Scene) -> None:
    """[H14] The first token is spent."""
    scene.process.backend.delays = [10.0]
    grant = acquire(scene, 60)
    assert grant.hold.deadline == END + 10
    scene.process.wait_until_idle()
    grant.ensure_held(confirm=True)


def test_acquire_counts_its_lease_from_the_request(scene: Scene) -> None:
    """[H14] Less the drift of the clocks; one command, and no seat to give up."""
    scene.process.backend.delays = [0.25]
    grant = acquire(scene)
    assert (grant.hold.deadline, grant.hold.state, grant.hold.outcome_unknown) == (END, State.HELD, False)
    assert scene.process.effects == ["lock/acquire"]


def test_hold_with_renewal_or_on_lost_is_watched(scene: Scene) -> None:
    """[L8] [H23] A fixed lease whose loss is of no interest needs nothing."""
    for options in ({"renew": True}, {"on_lost": print}, {}):
        acquire(scene, **options).release()
        assert ("watch" in scene.process.effects) is bool(options), options
        scene.process.effects.clear()


@pytest.mark.parametrize("late", ["acquire", "aacquire"])
def test_answer_that_outlasts_the_lease_is_no_busy_lock(scene: Scene, late: str) -> None:
    """[E16] It isn't held."""
    lock = scene.process.lock(expire=1)
    scene.process.backend.delays = [1.5]
    with pytest.raises(LockBackendError, match="longer than the lease of 1 s"):
        lock.acquire(timeout=0) if late == "acquire" else asyncio.run(lock.aacquire(timeout=0))
    scene.process.backend.delays = [1.5]
    assert scene.process.lock(expire=1, on_backend_error="open").acquire(timeout=0).fence is None
    scene.other.hold()
    with pytest.raises(LockNotAcquired):
        scene.process.lock(wait=0).acquire()


# Release


@pytest.mark.parametrize(
    ("fates", "seconds", "confirmed", "left"),
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
def test_release_reports_what_the_store_answered(
    scene: Scene, heard: list[events.Event], fates: list[str], seconds: float, confirmed: Any, left: str
) -> None:
    """[L2] [L3] [L14] [L15] [H15] "Not mine" is a loss within the lease, unless an earlier copy may have done it; after the lease
    the local clock decides, although the store can't be asked. Whatever wasn't answered the janitor brings to its end."""
    grant = acquire(scene)
    if "taken" in fates:
        scene.other.lock().force_release()
    scene.process.backend.fates["lock/release"] = [fate for fate in fates if fate != "taken"]
    scene.time.time += seconds
    heard.clear()
    if isinstance(confirmed, bool):
        grant.release()
        assert [event.confirmed for event in heard if isinstance(event, events.Released)] == [confirmed]
        assert grant.hold.state is State.GONE
    elif isinstance(confirmed, str):
        with pytest.raises(LockLost, match=confirmed):
            grant.release()
    else:
        with pytest.raises(confirmed):
            grant.release()
        assert grant.hold.state is State.RELEASING
    assert losses(heard) == ([confirmed] if isinstance(confirmed, str) else [])
    assert scene.process.effects[-1] == left


@pytest.mark.parametrize("settled", [True, False])
def test_second_release_accepts_what_the_janitor_did(scene: Scene, heard: list[events.Event], settled: bool) -> None:
    """[L15] [H15] The grant is its owner's to release until that is answered; "not mine" is the janitor's success then."""
    grant = acquire(scene)
    scene.process.backend.fates["lock/release"] = ["down"] * 9
    with pytest.raises(LockBackendError):
        grant.release()
    scene.process.outage.probe()
    if settled:
        scene.process.wait_until_idle()
    grant.release()
    assert grant.released
    assert [event.confirmed for event in heard if isinstance(event, events.Released)] == [not settled]
    assert losses(heard) == []


def test_lock_that_was_lost_and_reported_is_not_released(scene: Scene) -> None:
    """[L3] Whatever the store says later."""
    grant = acquire(scene)
    grant.hold.mark_lost("expired")
    with pytest.raises(LockLost):
        grant.release()


def test_extend_without_an_answer_changes_nothing(scene: Scene) -> None:
    """The lease is as it was, as far as is known; and what is answered after the loss was reported comes too late."""
    grant = acquire(scene)
    scene.process.backend.fates["lock/renew"] = ["lost"] * 9
    with pytest.raises(LockBackendError):
        grant.extend(60)
    assert (grant.hold.deadline, grant.hold.state) == (END, State.HELD)
    scene.process.outage.probe()
    grant.hold.mark_lost("expired")
    with pytest.raises(LockLost, match="expired"):
        run(scene.process.lock().extending(grant.hold, 60_000), scene.process.engine)


def test_confirmation_of_a_lost_lock_raises_LockLost_once(scene: Scene, heard: list[events.Event]) -> None:
    """[L3] With the reason."""
    grant = acquire(scene)
    scene.other.lock().force_release()
    for _ in range(2):
        with pytest.raises(LockLost, match="taken"):
            grant.ensure_held(confirm=True)
    assert losses(heard) == ["taken"]


def test_with_block_ends_without_error_when_the_store_is_down(scene: Scene, heard: list[events.Event]) -> None:
    """[F12] What was protected until now is fine, and the release goes on in the background."""
    scene.process.backend.fates["lock/release"] = ["down"] * 9
    with scene.process.lock():
        heard.clear()
    assert [type(event) for event in heard] == [events.BackendFailed]
    assert scene.left_behind() == []


def test_force_release_after_a_lost_answer_wakes_local_waiters(scene: Scene) -> None:
    """[L24] [H3] It may have freed the lock."""
    scene.other.hold()
    for fate, freed in (("stale", True), ("ok", False)):
        scene.process.backend.fates["lock/force_release"] = [fate]
        assert scene.process.lock().force_release() is freed
        assert ("NotifyWaiters" in scene.process.effects) is freed
        scene.process.effects.clear()


# Hand-over


def wait_behind(scene: Scene, hold: Hold, timeout: float = 3.0) -> Grant:
    """Acquire while the hold is given back to the process's own queue."""
    scene.process.waits = [lambda: None, lambda: scene.process.free(hold)]
    return acquire(scene, timeout)


def test_release_to_a_local_waiter_sends_nothing(scene: Scene, heard: list[events.Event]) -> None:
    """[H3] The token stays for the heir, unless it may be gone, or be freed by the janitor; the sixteenth is the last while
    others wait [H4]."""

    def doubt(hold: Hold, how: str) -> None:
        match how:
            case "an unanswered acquire":
                hold.outcome_unknown = True
            case "an earlier release":
                hold.release_failed = True
            case "a loss":
                hold.lost_why = "taken"
            case "the deadline":
                hold.deadline = NOW
            case "sixteen times":
                hold.hand_overs = DEFAULT.hand_overs

    for how in ("", "an unanswered acquire", "an earlier release", "a loss", "the deadline", "sixteen times"):
        scene = Scene(scene.time)
        process = scene.process
        waiter = process.sit()
        grant = acquire(scene, 0)
        doubt(grant.hold, how)
        process.effects.clear()
        scene.time.time = NOW
        if how == "a loss":
            with pytest.raises(LockLost):
                grant.release()
        else:
            grant.release()
        assert ("lock/release" in process.effects) is bool(how), how
        process.stand(waiter)
        assert scene.left_behind() == []
    assert losses(heard) == []


@pytest.mark.parametrize("fates", [[], ["lost"]], ids=["answered", "lost answer"])
@pytest.mark.parametrize("gone", ["", "freed", "taken"])
def test_heir_that_does_not_find_its_lock_reports_that_it_was_gone(
    scene: Scene, heard: list[events.Event], fates: list[str], gone: str
) -> None:
    """[H3] [H15] As gone after its release, which is no loss for sure; not after a lost answer, which may have been its own."""
    hold = scene.process.hold()

    def hand_over() -> None:
        scene.process.free(hold)
        if gone:
            scene.other.lock().force_release()
        if gone == "taken":
            scene.other.hold(expire=1)
        scene.process.backend.fates["lock/acquire"] = fates[:]

    scene.process.waits = [lambda: None, hand_over]
    grant = acquire(scene)
    assert (grant.hold.token != hold.token, grant.fence > hold.fence) == (True, True)
    assert losses(heard) == []
    assert len([event for event in heard if isinstance(event, events.Vanished)]) == bool(gone and not fates)


def test_lock_that_an_unheard_attempt_may_have_taken_is_not_reported_as_gone(
    scene: Scene, heard: list[events.Event]
) -> None:
    """[H3] The store can't say which of both it was."""
    handed = HandedOverLock(scene.process.hold(), lambda token: pytest.fail("nothing frees it"), lambda: None)
    handed.gone()
    handed.rejected(Attempt())
    handed.gone()
    assert len([event for event in heard if isinstance(event, events.Vanished)]) == 1


def test_lock_reused_locally_keeps_token_and_lease_and_takes_a_reserved_fence(scene: Scene) -> None:
    """[H2] [H3] [H14] Its lease is that of the last question; its holder is stored by its renewal."""
    hold = scene.process.hold()
    hold.reserved_fences, hold.hand_overs = 3, 1
    scene.time.time += 0.01
    hold_of_heir = wait_behind(scene, hold).hold
    assert (hold_of_heir.token, hold_of_heir.fence) == (hold.token, hold.fence + 1)
    assert (hold_of_heir.confirmed_at, hold_of_heir.since) == (NOW, NOW + 0.01)
    assert hold_of_heir.deadline == NOW + 0.01 + validity(10_000)
    assert (hold_of_heir.reserved_fences, hold_of_heir.hand_overs) == (2, 2)


def test_handover_count_rises_only_while_other_processes_wait(scene: Scene) -> None:
    """[H4] A lock that no other process waits for stays as long as it likes, and its heir may go on unasked."""
    for others in (True, False):
        scene = Scene(scene.time)
        hold = scene.process.hold()
        hold.hand_overs = 7
        if others:
            scene.process.backend._store.enqueue(scene.process.lock().keys.waiters, "another process's 1", 0)
        heir = wait_behind(scene, hold).hold
        assert (heir.hand_overs, heir.reserved_fences) == ((8, 0) if others else (0, RESERVED_FENCES))
        scene.forget()


def test_reply_of_acquire_is_parsed() -> None:
    """As Redis answers it: large numbers as bytes."""
    for reply, verdict in (
        ([1, b"7", 1, 0, 0], Granted(7, True, QueuePosition(0, False))),
        ([1, b"7", 0, b"1700000000000001", 1], Granted(7, False, QueuePosition(1_700_000_000_000_001, True))),
        ([-1, b"a string"], ForeignValue("a string")),
    ):
        assert parse_acquire(reply) == verdict
    with pytest.raises(PARSE_ERRORS):
        parse_acquire(1)  # no fence is as small
    busy = parse_acquire([0, 1500, b"7", b"1700000000000", b'["host",1,null,null]', b"1700000000000001", 1])
    assert isinstance(busy, Busy)
    assert (busy.lease_left, busy.position) == (1.5, QueuePosition(1_700_000_000_000_001, True))
    assert busy.holder is not None
    assert (busy.holder.fence, busy.holder.since, busy.holder.host) == (7, 1_700_000_000.0, "host")

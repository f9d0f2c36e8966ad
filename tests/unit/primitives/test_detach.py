"""Detach and attach with replies that are lost or late, and with interruptions."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable
from math import inf
from types import FrameType
from typing import Any

import pytest

from django_redis_locks import Grant, LockBackendError, LockLost
from django_redis_locks.engine import exit_release
from tests.unit.primitives.scenario import Scenario, VirtualClock


def acquire(scenario: Scenario) -> Grant:
    grant = scenario.process.lock(expire=30, renew=True).acquire(timeout=0)
    assert grant is not None
    return grant


@pytest.mark.parametrize("fate", ["lost", "dropped", "late", "loading"])
def test_repeated_request_of_one_call_has_one_result(scenario: Scenario, fate: str) -> None:
    """[H2] [L12] A late copy changes nothing."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = [fate]
    text = grant.detach()
    scenario.other.backend.outcomes["lock/transfer"] = [fate]
    attached = scenario.other.locks.attach(text)
    scenario.process.wait_until_idle()
    scenario.other.wait_until_idle()
    attached.ensure_held(confirm=True)
    assert attached.fence == grant.fence
    attached.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("first", ["lost", "down"])
def test_detach_without_a_reply_keeps_the_hold_and_may_be_repeated(scenario: Scenario, first: str) -> None:
    """[L7] Whether or not it was carried out, the second call returns a text that works."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        grant.detach()
    assert (grant.held, grant.hold in scenario.process.renewed[1:]) == (True, True)
    scenario.process.backend.outcomes.clear()
    scenario.time.time += 3
    scenario.other.locks.attach(grant.detach()).release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("first", ["lost", "late"])
def test_detach_without_a_reply_never_shortens_the_lease(scenario: Scenario, first: str) -> None:
    """[H3] [L7] Not even for a short journey, nor by a late copy: the grant counts as held. It is undone in the
    background."""
    grant = scenario.process.lock(expire=30).acquire(timeout=0)
    assert grant is not None
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        grant.detach(expire=1)
    scenario.process.backend.execute_late_requests()
    scenario.time.time += 20
    assert grant.held
    assert scenario.other.lock().locked()
    scenario.process.execute_due_jobs()
    grant.ensure_held(confirm=True)
    grant.release()
    assert scenario.leftovers() == []


def test_late_copies_of_an_earlier_attempt_leave_the_text_usable(scenario: Scenario) -> None:
    """[L7] Neither the attempt nor what undoes it knows the token of the text."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = ["late", "refused"]
    with pytest.raises(LockBackendError):
        grant.detach()
    text = grant.detach()
    scenario.process.wait_until_idle()
    scenario.other.locks.attach(text).release()
    assert scenario.leftovers() == []


def test_failed_detach_of_a_granted_lock_leaves_its_confirmation(scenario: Scenario) -> None:
    """[L7] A fixed lease isn't renewed, but the short one of a direct grant is extended."""
    grant = scenario.process.lock(expire=30).acquire(timeout=0)
    assert grant is not None
    grant.hold.deadline = grant.hold.since + 3
    scenario.process.backend.outcomes["lock/transfer"] = ["refused"]
    with pytest.raises(LockBackendError):
        grant.detach()
    assert scenario.process.renewed == [grant.hold]
    grant.release()


def test_exit_releases_a_lock_that_an_attempt_has_detached(scenario: Scenario) -> None:
    """[L7] No text was returned for it."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = ["lost", "refused"]
    with pytest.raises(LockBackendError):
        grant.detach(expire=3600)
    assert scenario.process.lock().locked()
    assert grant.hold.end()
    exit_release._release(scenario.process.engine, [grant], inf)
    assert not scenario.other.lock().locked()


def test_signal_while_the_exit_releases_locks_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """[L7] Once: a second one ends the process."""
    monkeypatch.setattr(exit_release, "_exiting", False, raising=False)
    monkeypatch.setattr(exit_release, "_grants", lambda: os.kill(os.getpid(), signal.SIGUSR1) or [])
    exit_release.exit_at([signal.SIGUSR1])
    try:
        exit_release.release_all()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@pytest.mark.parametrize("first", ["lost", "late", "down"])
def test_release_after_a_detach_without_a_reply_frees_the_lock(scenario: Scenario, first: str) -> None:
    """[L7] Also if it was carried out: then there is no text, and the lock would stay until its lease ends."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        grant.detach()
    scenario.process.backend.outcomes.clear()
    scenario.time.time += 3
    with contextlib.suppress(LockLost):
        grant.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("first", ["lost", "late", "down"])
def test_text_is_usable_again_after_an_attach_without_a_reply(scenario: Scenario, first: str) -> None:
    """[L7] If it was carried out, that is undone in the background, also for a late copy."""
    text = acquire(scenario).detach(expire=600)
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        scenario.process.locks.attach(text)
    scenario.process.backend.outcomes.clear()
    scenario.process.backend.execute_late_requests()
    scenario.process.execute_due_jobs()
    scenario.time.time += 500  # it has the lease of its journey again
    attached = scenario.other.locks.attach(text)
    scenario.process.wait_until_idle()
    attached.ensure_held(confirm=True)
    attached.release()
    assert scenario.leftovers() == []


def test_attach_whose_answer_takes_longer_than_the_lease_raises(scenario: Scenario) -> None:
    """[H3] The lock may have another holder by then."""
    text = acquire(scenario).detach()
    scenario.process.backend.delays = [31.0]
    with pytest.raises(LockLost, match="longer than the lease"):
        scenario.process.locks.attach(text)


def test_interrupted_detach_leaves_a_grant_that_releases_the_lock(time: VirtualClock) -> None:
    """[L7] At any effect, before or after it was performed."""
    for number, performed in itertools.product(range(3), (False, True)):
        scenario = Scenario(time)
        grant = acquire(scenario)
        scenario.process.interruption = len(scenario.process.effects) + number, performed, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            grant.detach()
        scenario.process.interruption = None
        with contextlib.suppress(LockLost):
            grant.release()
        assert scenario.leftovers() == [], (number, performed)


def test_interrupted_attach_leaves_a_text_that_attaches_the_lock(time: VirtualClock) -> None:
    """[L7] At any effect, before or after it was performed."""
    for number, performed in itertools.product(range(2), (False, True)):
        scenario = Scenario(time)
        text = acquire(scenario).detach()
        scenario.process.interruption = len(scenario.process.effects) + number, performed, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            scenario.process.locks.attach(text)
        scenario.process.interruption = None
        scenario.process.execute_due_jobs()
        scenario.other.locks.attach(text).release()
        assert scenario.leftovers() == [], (number, performed)


def interrupt_line(number: int) -> tuple[list[int], Callable[..., Any]]:
    """A trace function that raises at a line of ``detach``, and the lines that it has seen."""
    lines: list[int] = []

    def trace(frame: FrameType, event: str, _arg: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.endswith("shared/detach.py"):
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == number:
                raise KeyboardInterrupt
        return trace

    return lines, trace


def test_detach_interrupted_at_any_line_leaves_nothing_locked(time: VirtualClock) -> None:
    """[L7] Once the grant is released."""
    for number in itertools.count(1):
        scenario = Scenario(time)
        grant = acquire(scenario)
        lines, trace = interrupt_line(number)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            grant.detach(expire=3600)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if len(lines) < number:
            scenario.forget()
            break
        with contextlib.suppress(LockLost):
            grant.release()
        assert scenario.leftovers() == [], lines
    assert number > 30

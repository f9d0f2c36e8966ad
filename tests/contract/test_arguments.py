"""Wrong arguments are refused before any request is sent, so the memory backend represents all.

``core/durations.py`` and its unit tests define wrong times; here every public method is checked to refuse them.
"""

from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from django_redis_locks import LockKeyError, LockNotOwned, diagnosis, inspection
from tests.contract.matrix import Caller, Face, on_memory, threads_only

pytestmark = on_memory

NO_TIMES = [math.nan, math.inf, -math.inf, True, False, "5", "", b"5", [], Decimal(5), 10**400]

NO_WAITS = [
    *({"timeout": timeout} for timeout in (*NO_TIMES, -2, -0.5, timedelta(seconds=-1))),
    *({"blocking": False, "timeout": timeout} for timeout in (0, 1, -2, math.nan, "1")),
    *({"blocking": blocking} for blocking in (5, None, "no")),
]


def assert_refused(face: Face, values: list[Any], match: str, call: Callable[[Any], Any]) -> None:
    """Each value raises a ValueError that describes the valid ones, and no request is sent."""
    for value in values:
        with face.commands() as commands:
            found = message(call, value)
        assert re.search(match, found), f"{value!r}: {found}"
        assert commands == [], repr(value)


def message(call: Callable[[Any], Any], value: Any) -> str:
    try:
        return f"accepted: {call(value)!r}"
    except ValueError as error:
        return str(error)


def test_acquire_with_a_wrong_wait_raises_ValueError(face: Face, alice: Caller) -> None:
    """[F2] ``acquire(5)`` isn't a wait of five seconds. Also for a caller that wouldn't wait: the owner, at
    re-entry."""
    lock, rlock = face.lock(), face.rlock()
    for held in (False, True):
        grant = alice(rlock.acquire) if held else None
        for asked in (lock, rlock):
            assert_refused(face, NO_WAITS, r"timeout|blocking", lambda how, asked=asked: alice(asked.acquire, **how))
    alice(grant.release)
    assert not alice(lock.locked)


def test_extend_with_a_wrong_lease_raises_ValueError(face: Face, alice: Caller) -> None:
    """[F2]"""
    grant = alice(face.lock().acquire)
    assert_refused(
        face, [*NO_TIMES, 0, -1, 0.001, None], r"^expire must be", lambda expire: alice(grant.extend, expire)
    )


def test_force_release_with_a_wrong_fence_raises_ValueError(face: Face, alice: Caller, bob: Caller) -> None:
    """A fence from a form or a URL is a string, maybe an empty one. The lock stays held."""
    lock = face.lock()
    grant = alice(lock.acquire)
    fence = grant.fence
    wrong = [str(fence), "", str(fence).encode(), float(fence), True, [fence]]
    assert_refused(face, wrong, r"^fence must be an int, ", lambda fence: bob(lock.force_release, fence=fence))
    alice(grant.ensure_held, confirm=True)


def test_put_with_a_wrong_argument_raises(face: Face, alice: Caller) -> None:
    record = face.record()
    assert_refused(face, [*NO_TIMES, 0, -1], r"^expire", lambda expire: alice(record.put, None, {}, expire=expire))
    for wrong, message in (
        ({"max_hold": 5}, "renew=True"),
        ({"on_lost": print}, "renew=True"),
        ({"renew": True, "max_hold": 0}, "max_hold must be between"),
        ({"renew": True, "max_hold": -2}, "max_hold must be between"),
        ({"renew": True, "on_lost": "cancel"}, "on_lost is None or a callable"),
        ({"show_in_admin": "held"}, 'show_in_admin is True, False or "queued"'),
        ({"show_in_admin": 1}, 'show_in_admin is True, False or "queued"'),
    ):
        assert_refused(face, [wrong], message, lambda wrong: alice(record.put, None, {}, **wrong))
    for fields in ({"a": object()}, {1: 2}, ["a"], "text", {"a": math.nan}, None):
        with face.commands() as commands, pytest.raises(TypeError, match="field"):
            alice(record.put, None, fields)
        assert commands == [], repr(fields)


def test_inspection_or_diagnosis_with_a_wrong_argument_raises(face: Face, alice: Caller) -> None:
    """Beyond 2**53 Lua would return the same fence twice."""
    for wrong, message in (
        ({"order": "age"}, "order is one of 'lease_left', 'key'"),
        ({"state": "stuck"}, "state is one of 'held', 'overdue'"),
        ({"limit": 0}, "limit is a whole number from 1 to 1000"),
        ({"limit": True}, "limit is a whole number"),
        ({"cursor": -1}, "cursor is a whole number from 0 on"),
    ):
        assert_refused(face, [wrong], message, lambda wrong: alice(inspection.held, **wrong))
    for call in (inspection.find, inspection.force_release):
        with pytest.raises(LockKeyError):
            alice(call, "")
    fences = [-1, 2**52 + 1, 10**30, True, 1.5, "5", None]
    assert_refused(
        face, fences, "a fence is a whole number from 0 to", lambda least: alice(diagnosis.raise_fences, least)
    )


def test_argument_that_is_no_record_is_refused(face: Face, alice: Caller) -> None:
    """[L5] It would be ambiguous between the key and the fields."""
    record = face.record()
    for step in (
        lambda wrong: alice(record.put, wrong, {}),
        lambda wrong: alice(record.touch, wrong, 5),
        lambda wrong: alice(record.drop, wrong),
        lambda wrong: alice(record.wait_for_change, wrong, timeout=0),
    ):
        with (
            face.commands() as commands,
            pytest.raises(TypeError, match=r"Record that get\(\) returned.*str is neither"),
        ):
            step("x")
        assert commands == []


def test_arguments_of_other_libraries_are_translated(face: Face, alice: Caller) -> None:
    """[L5] Otherwise the message names their replacement."""
    for name, hint in (
        ("blocking_timeout", "did you mean 'timeout'"),
        ("wait", "did you mean 'timeout'"),
        ("token", "its own"),
    ):
        assert_refused_with_TypeError(
            f"acquire\\(\\) has no argument '{name}'; .*{hint}",
            lambda name=name: alice(face.lock().acquire, **{name: 1}),
        )
    for name, hint in (
        ("blocking_timeout", "did you mean 'wait'"),
        ("auto_renewal", "did you mean 'renew'"),
        ("blocking", r"acquire\(blocking=False\)"),
        ("reentrant", r"rlock\(key\)"),
        ("using", r'locks\["alias"\]'),
        ("thread_local", r"grant\.release\(\)"),
        ("exprie", "did you mean 'expire'"),
        ("colour", "there are expire"),
    ):
        assert_refused_with_TypeError(f"has no argument '{name}'; .*{hint}", lambda name=name: face.lock(**{name: 1}))


def assert_refused_with_TypeError(match: str, call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=match):
        call()


# Creation of a lock


@threads_only
def test_lock_is_shared_but_never_pickled(face: Face, alice: Caller) -> None:
    """[L5] [L8] The message says what to pass instead; dir() shows the public methods only."""
    lock = face.lock()
    assert copy.copy(lock) is copy.deepcopy([lock])[0] is lock
    for thing, hint in ((lock, r"call locks\.lock\(key\) in"), (alice(lock.acquire), "Pass its key")):
        assert_refused_with_TypeError(hint, lambda thing=thing: pickle.dumps(thing))
    assert [name for name in dir(lock) if name[0] != "_"] == sorted(
        ["key", "name", "alias", "owned"]
        + [a + name for name in ("acquire", "release", "locked", "holder", "force_release") for a in ("", "a")]
    )
    with pytest.raises(LockNotOwned, match=r"grant\.release\(\)"):
        lock.release()


@threads_only
def test_a_lock_with_wrong_options_raises_ValueError(face: Face) -> None:
    """[F2] [F11] Its lease, wait, name, renewal, its limit, note and callback are checked when it is made: renew="no", from an
    environment variable, would renew."""
    leases = [0, 0.0, -1, -5, 0.001, 315_360_001, timedelta(0), timedelta.max, timedelta(seconds=-5), *NO_TIMES]
    waits = [-2, -0.5, -0.001, timedelta(seconds=-1), timedelta.min, *NO_TIMES]
    for make in (face.lock, face.rlock):
        for option, values in (("expire", leases), ("wait", waits)):
            for value in values:
                with pytest.raises(ValueError, match=rf"^{option} must be .*{re.escape(repr(value))}"):
                    make(**{option: value})
    for option, values in (
        ("name", [5, b"thing", True, ["thing"], 1.5]),
        ("renew", ["no", "", 0, 1, 2.5, []]),
        ("wait_for_parent", ["no", None, 0, 1]),
        ("on_lost", ["stop", 1, True]),
        ("note", [5, b"note", "ä" * 101, "\ud800", ["note"]]),
        ("max_hold", [0, -2, True, "5", math.inf, timedelta(0), 29]),
    ):
        assert_refused(face, values, rf"^{option} ", lambda value, option=option: face.lock(**{option: value}))


@threads_only
def test_a_lock_with_a_wrong_key_raises_LockKeyError(face: Face) -> None:
    """[F7] LockKeyError is a ValueError."""
    for key in (None, "", b"bytes", 1, ("a",), "\ud800"):
        with pytest.raises(LockKeyError) as caught:
            face.lock(key=key)
        assert isinstance(caught.value, ValueError)

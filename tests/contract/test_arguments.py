"""What every backend and both faces answer to misuse: wrong arguments, the wrong caller, the wrong process.

What a wrong argument is, is settled in ``core/durations.py`` and its unit tests; here is shown that every door asks
there, before anything is sent. Keys, senseless waits of a free lock, extensions, releases by the wrong caller and most
of re-entry are promises of the other suites.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import re
import threading
import warnings
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any

import pytest

from django_redis_locks import Grant, LockAlreadyHeld, LockLost, LockNotOwned
from django_redis_locks.core.tuning import RESERVED_FENCES
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside, prolonged, twin
from tests.forks import in_child

# Times

NO_WAITS = [
    {"timeout": -math.inf},
    {"timeout": timedelta(seconds=-1)},
    {"timeout": False},
    {"timeout": b"1"},
    {"timeout": []},
    {"timeout": Decimal(1)},
    {"timeout": 10**400},
    {"blocking": False, "timeout": 0},
    {"blocking": False, "timeout": -2},
    {"blocking": False, "timeout": math.nan},
    {"blocking": False, "timeout": "1"},
    {"blocking": 5},
    {"blocking": None},
    {"blocking": "no"},
]


@pytest.mark.parametrize("how", NO_WAITS, ids=lambda how: str(how)[:50])
def test_what_is_no_wait_is_refused(face: Face, alice: Caller, how: dict[str, Any]) -> None:
    """[F2] Before anything is sent, as a ValueError that names the argument; ``acquire(5)`` is no wait of five seconds.
    Also from who would not wait: by re-entry, or because he holds it."""
    lock, rlock = face.lock(), face.rlock()
    for asked in (lock, rlock):
        with face.commands() as commands, pytest.raises(ValueError, match=r"timeout|blocking"):
            alice(asked.acquire, **how)
        assert commands == []
    grant = alice(rlock.acquire)
    for asked in (lock, rlock):
        with pytest.raises(ValueError, match=r"timeout|blocking"):
            alice(asked.acquire, **how)
    alice(grant.release)
    assert not alice(lock.locked)


NO_TIMES = [math.nan, math.inf, -math.inf, True, False, "5", "", b"5", [], Decimal(5), 10**400]


def test_what_is_no_lease_makes_no_lock(face: Face) -> None:
    """[F2] Nothing, negative, -1 which is a wait, too short, beyond ten years, no time at all: where the lock is made."""
    for expire in (0, 0.0, -1, -5, 0.001, 315_360_001, timedelta(0), timedelta.max, timedelta(seconds=-5), *NO_TIMES):
        for make in (face.lock, face.rlock):
            with pytest.raises(ValueError, match=rf"^expire must be .*{re.escape(repr(expire))}"):
                make(expire=expire)


def test_what_is_no_wait_makes_no_lock(face: Face) -> None:
    """[F2] The lock's own wait is refused where the lock is made, not when it is first busy."""
    for wait in (-2, -0.5, -0.001, timedelta(seconds=-1), timedelta.min, *NO_TIMES):
        for make in (face.lock, face.rlock):
            with pytest.raises(ValueError, match=rf"^wait must be .*{re.escape(repr(wait))}"):
                make(wait=wait)


def test_the_longest_lease_is_ten_years(face: Face, alice: Caller, bob: Caller) -> None:
    """[F2] A store counts that far, and so does the holder."""
    grant = alice(face.lock(expire=315_360_000).acquire)
    assert bob(face.lock().holder).lease_left > 315_359_990
    assert grant.remaining() > 0.98 * 315_360_000
    alice(grant.ensure_held, confirm=True)
    alice(grant.release)
    assert not bob(face.lock().locked)


def test_a_timedelta_is_a_length_of_time(face: Face, alice: Caller, bob: Caller) -> None:
    """[F2] Wherever seconds are."""
    grant = alice(face.lock(expire=timedelta(minutes=2)).acquire, timeout=timedelta(seconds=10))
    assert 110 < bob(face.lock().holder).lease_left <= 120
    assert bob(face.lock().acquire, timeout=timedelta(milliseconds=20)) is None
    assert bob(face.lock(wait=timedelta(milliseconds=20)).acquire, timeout=0) is None
    alice(grant.extend, timedelta(minutes=4))
    assert 230 < bob(face.lock().holder).lease_left <= 240


@pytest.mark.parametrize("timeout", [threading.TIMEOUT_MAX * 2, 1e100, timedelta.max], ids=repr)
def test_a_wait_beyond_all_clocks_is_a_long_wait(face: Face, alice: Caller, timeout: Any) -> None:
    """[F2] Who waits, and who waits behind him, waits as with any other timeout, and gets the lock."""
    lock = face.lock()
    alice(lock.acquire)
    callers = [face.caller() for _ in range(3)]
    waiting = [face.start_waiting(caller, lock, timeout=timeout) for caller in callers]
    assert face.queued(lock) == 3
    alice(lock.release)
    for caller, future in zip(callers, waiting, strict=True):
        assert future.result(PATIENCE)
        caller(lock.release)


# Keys, fences and other arguments


class Model(str, Enum):  # noqa: UP042 - a StrEnum would be formatted as its text, this one isn't
    ORDER = "order:1"


def test_a_text_of_another_class_is_its_text(face: Face, alice: Caller, bob: Caller) -> None:
    """[F7] However it is formatted: a member of an Enum, or a template's SafeString, is the same key as its text."""
    lock = face.lock(key=Model.ORDER)
    assert lock.name == "order"
    alice(lock.acquire)
    assert bob(face.lock(key="order:1").acquire, blocking=False) is None
    assert bob(face.lock(key=str(Model.ORDER)).acquire, blocking=False)


def test_a_fence_that_nobody_has_frees_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """A fence is compared, also one that is false: only None means whoever holds it. Some after that of the hold are kept
    for those who take it over. The answer may be wrong, if one was lost on the way; the lock isn't freed."""
    lock = face.lock()
    grant = alice(lock.acquire)
    for fence in (0, -1, grant.fence - 1, grant.fence + RESERVED_FENCES + 1, 10**30):
        bob(lock.force_release, fence=fence)
        alice(grant.ensure_held, confirm=True)
    assert bob(lock.force_release, fence=grant.fence) is True


WRONG_FENCES: dict[str, Callable[[int], Any]] = {
    "text": str,
    "empty": lambda fence: "",
    "bytes": lambda fence: str(fence).encode(),
    "float": float,
    "bool": lambda fence: True,
    "list": lambda fence: [fence],
}


@pytest.mark.parametrize("wrong", WRONG_FENCES.values(), ids=WRONG_FENCES)
def test_what_is_no_fence_is_refused(face: Face, alice: Caller, bob: Caller, wrong: Callable[[int], Any]) -> None:
    """A fence out of a form or a URL is a text, maybe an empty one: a ValueError, and the lock stays whose it is."""
    lock = face.lock()
    grant = alice(lock.acquire)
    with face.commands() as commands, pytest.raises(ValueError, match=r"^fence must be an int, "):
        bob(lock.force_release, fence=wrong(grant.fence))
    assert commands == []
    alice(grant.ensure_held, confirm=True)


@pytest.mark.parametrize("name", [5, b"thing", True, ["thing"], 1.5], ids=repr)
def test_what_is_no_text_is_no_name(face: Face, name: Any) -> None:
    """It is refused where the lock is made, not when the store is to be told who holds it."""
    with pytest.raises(ValueError, match=r"^name "):
        face.lock(name=name)


@pytest.mark.parametrize("renew", ["no", "", 0, 1, 2.5, []], ids=repr)
def test_what_is_no_bool_is_no_renew(face: Face, renew: Any) -> None:
    """[F2] renew="no", out of the environment, would renew."""
    with pytest.raises(ValueError, match=r"^renew "):
        face.lock(renew=renew)


# Re-entry


def test_no_way_of_asking_re_enters_a_lost_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [F5] Not even a question that takes no for an answer, since the section around it runs unlocked. By another
    caller, and as a plain lock, it is free."""
    lock, rlock = face.lock(expire=30), face.rlock(expire=30)
    grant = alice(face.rlock(expire=0.05).acquire)
    eventually(lambda: grant.lost)
    with face.commands() as commands:
        for how in ({}, {"blocking": False}, {"timeout": 0}, {"timeout": 5}, {"timeout": -1}):
            with pytest.raises(LockLost, match="expired"):
                alice(rlock.acquire, **how)
        with pytest.raises(LockLost), inside(alice, rlock):
            pytest.fail("the body ran")
    assert commands == []
    assert not alice(rlock.owned)
    other = bob(rlock.acquire, timeout=20)
    bob(other.release)
    assert alice(lock.acquire, timeout=20)


@pytest.mark.usefixtures("often")
def test_a_renewed_re_entry_outlasts_a_fixed_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [L11] Who enters to be renewed is renewed, although the section around it wouldn't be."""
    face.configure(EXPIRE=9)
    outer = alice(face.rlock(expire=9).acquire)
    inner = alice(face.rlock().acquire)
    prolonged(bob, face.lock())
    alice(inner.ensure_held, confirm=True)
    alice(inner.release)
    alice(outer.release)
    assert bob(face.lock().acquire, timeout=0)


@pytest.mark.usefixtures("often")
def test_a_fixed_re_entry_into_a_renewed_lock_gets_all_of_its_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [L11] One round trip, and the renewal goes on without taking any of it back."""
    face.configure(EXPIRE=9)
    outer = alice(face.rlock().acquire)
    with face.commands() as commands:
        inner = alice(face.rlock(expire=90).acquire)
        alice(face.rlock(expire=20).acquire)
    assert commands == ["lock/renew"]
    assert bob(face.lock().acquire, timeout=1) is None  # renewed meanwhile, for 9 s a time
    assert bob(face.lock().holder).lease_left > 70
    assert outer.remaining() > 70
    assert outer.hold.deadline == inner.hold.deadline


# The wrong caller


def borrow(face: Face, alice: Caller, bob: Caller) -> Callable[..., Any]:
    """Bob's thread, or a task of his, in a copy of Alice's context, as ``asyncio.to_thread`` makes one."""
    context = alice(contextvars.copy_context)

    def borrowing(method: Callable[..., Any], **how: Any) -> Any:
        async def child() -> Any:
            return await asyncio.get_running_loop().create_task(twin(method)(**how), context=context)

        return bob(child) if face.is_async else bob(partial(context.run, method, **how))

    return borrowing


def test_a_borrowed_context_is_a_strangers(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5] It owns nothing, and is told at once that it would wait for who started it."""
    lock = face.rlock()
    grant = alice(lock.acquire)
    borrowing = borrow(face, alice, bob)
    with face.commands() as commands:
        assert borrowing(lock.acquire, blocking=False) is None
        for how in ({}, {"timeout": 0}, {"timeout": -1}):
            with pytest.raises(LockAlreadyHeld, match="the task or thread that started this one holds it"):
                borrowing(lock.acquire, **how)
        with pytest.raises(LockNotOwned):
            borrowing(lock.release)
    assert commands == []
    alice(grant.ensure_held, confirm=True)


@pytest.mark.parametrize("end", ["released", "lost"])
def test_a_borrowed_context_is_free_when_the_lock_is(face: Face, alice: Caller, bob: Caller, end: str) -> None:
    """[H5] Nobody is held up by a grant that was released, or is lost, although his context has it."""
    lock = face.rlock(expire=0.05 if end == "lost" else 30)
    grant = alice(lock.acquire)
    borrowing = borrow(face, alice, bob)
    if end == "lost":
        eventually(lambda: grant.lost)
    else:
        alice(grant.release)
    assert borrowing(face.rlock().acquire, timeout=20)


def test_the_end_of_a_with_that_never_began(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] It is LockNotOwned, ends nobody else's block, and doesn't take the place of an error on its way."""
    lock = face.lock()
    with inside(alice, lock) as grant:
        with pytest.raises(LockNotOwned):
            bob(lock.__exit__, None, None, None)
        bob(lock.__exit__, ValueError, ValueError("on its way"), None)
        alice(grant.ensure_held, confirm=True)
    with pytest.raises(LockNotOwned):
        alice(lock.__exit__, None, None, None)


# The wrong process


def here(face: Face, method: Callable[..., Any], *args: Any) -> Any:
    """Call in a forked child. Its parent's loop doesn't run there, so a coroutine must end without awaiting anything."""
    result = (twin(method) if face.is_async else method)(*args)
    if not face.is_async:
        return result
    with pytest.raises(StopIteration) as end:
        result.send(None)
    return end.value.value


@pytest.mark.parametrize("entries", [1, 2])
def test_a_release_in_a_forked_child_does_nothing(face: Face, alice: Caller, bob: Caller, entries: int) -> None:
    """[F16] [H18] [L47] There the grant is lost, its release warns once and does nothing, and nothing is done with it."""
    lock = face.rlock(expire=30)
    grants = [alice(lock.acquire) for _ in range(entries)]

    def use(grant: Grant) -> None:
        assert grant.lost
        assert grant.remaining() == 0.0
        for method, *args in ((grant.ensure_held,), (grant.extend, 60)):
            with pytest.raises(LockLost, match="forked"):
                here(face, method, *args)
        for expected in ([RuntimeWarning], []):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                here(face, grant.release)
            assert [warning.category for warning in caught] == expected

    def child() -> None:
        with face.commands() as commands:
            for grant in grants:
                use(grant)
            assert not lock.owned()
            with pytest.raises(LockNotOwned):
                here(face, lock.release)
        assert commands == []

    alice(partial(in_child, child))
    for grant in grants:
        assert bob(lock.acquire, blocking=False) is None
        alice(grant.ensure_held, confirm=True)
        alice(grant.release)
    assert not bob(lock.locked)


def test_a_with_that_is_left_in_a_forked_child_too(face: Face, alice: Caller, bob: Caller) -> None:
    """[F16] The child comes to the end of its parent's block: quietly, and without an end to the parent's hold."""
    lock = face.lock(expire=30)

    def child() -> None:
        for end in (lock.__exit__, grant.__exit__):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                here(face, end, None, None, None)
            assert len(caught) == (end == lock.__exit__)

    with inside(alice, lock) as grant:
        alice(partial(in_child, child))
        assert bob(lock.acquire, blocking=False) is None
        alice(grant.ensure_held, confirm=True)
    assert not bob(lock.locked)

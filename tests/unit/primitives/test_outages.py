"""For how long a store is asked again: one rule for all commands, and one memory of a server that is down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_redis_locks import LockBackendError, LockLost
from django_redis_locks.client import Locks
from django_redis_locks.core.effects import Sleep
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.runner import run
from django_redis_locks.primitives.shared.index import entries
from django_redis_locks.primitives.shared.load_commands import clear_command
from django_redis_locks.primitives.shared.retry import retry_command
from tests.unit.primitives.scene import Scene

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
@pytest.mark.parametrize("fate", ["lost", "dropped", "down", "loading"])
def test_one_lost_answer_fails_no_call(scene: Scene, call: str, fate: str) -> None:
    """[E12] Each step may be repeated: the call goes on within `BACKEND_WAIT`."""
    command, make_call = CALLS[call]
    scene.process.engine.locks = scene.process.locks
    grant = scene.process.lock(expire=5, reentrant=True).acquire()
    scene.process.backend.fates[command] = [fate]
    make_call(scene.process.lock(expire=20, reentrant=True), grant)
    assert scene.process.effects.count(command) == 2


def test_call_on_a_hold_ends_with_its_lease(scene: Scene) -> None:
    """[E12]"""
    grant = scene.process.lock(expire=1).acquire()
    scene.process.backend.fates["lock/release"] = DOWN[:]
    with pytest.raises(LockLost, match="expired"):
        grant.release()
    assert scene.time.time == pytest.approx(grant.hold.deadline)


@pytest.mark.parametrize("fate", ["down", "loading"])
def test_open_lock_opens_after_backend_wait(scene: Scene, fate: str) -> None:
    """[E18] Whether the store can't be reached or refuses for now; a closed one is waited for as long as `wait` says if it
    refuses."""
    scene.process.backend.fates["lock/acquire"] = [fate] * 99
    begin = scene.time.time
    assert scene.process.lock(on_backend_error="open").acquire(timeout=30).fence is None
    assert scene.time.time - begin == pytest.approx(2.0)


def test_server_that_is_down_fails_later_callers_at_once(scene: Scene) -> None:
    """[E18] One caller pays; whatever the others want of it, no request is sent. The first answer ends that."""
    process = scene.process
    held = process.locks.lock("held").acquire()
    process.backend.fates["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    begin = scene.time.time
    process.backend.fates.clear()
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
    assert scene.time.time == begin
    process.backend.fates["probe"] = ["down"]
    process.outage.probe()
    with pytest.raises(LockBackendError, match="known to be down"):
        process.lock().acquire()
    process.outage.probe()
    process.lock().acquire().release()
    held.release()


def test_caller_with_more_patience_waits_for_a_server_that_is_down(scene: Scene) -> None:
    """[E18] The server is down after the shortest `BACKEND_WAIT`. If nothing probes it any more, a caller asks it."""
    process = scene.process
    process.backend.fates["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    process.backend.fates.clear()
    begin = scene.time.time
    patient = Locks(replace(process.locks.settings, backend_wait=20.0), process.engine)
    patient.lock("b", wait=60).acquire().release()
    assert 1 < scene.time.time - begin < 10
    process.lock().acquire().release()


def test_one_caller_asks_a_server_that_nothing_probes(scene: Scene) -> None:
    """[E18] The thread that probes may be gone; the others still fail at once."""
    process = scene.process
    process.backend.fates["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    scene.time.time += 6
    for asked in (1, 0, 0):
        left = len(process.backend.fates["lock/acquire"])
        with pytest.raises(LockBackendError):
            process.lock().acquire()
        assert left - len(process.backend.fates["lock/acquire"]) == asked


def test_write_to_a_cache_is_sent_to_a_server_that_is_down(scene: Scene) -> None:
    """[S2] It voids loads: what is written may reach its own server."""
    process = scene.process
    process.backend.fates["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        process.lock().acquire()
    run(retry_command(clear_command("generation")), process.engine)
    process.backend.fates.clear()
    process.lock().acquire().release()


def test_forced_release_that_is_repeated_frees_no_later_hold(scene: Scene) -> None:
    """[E12] Its first copy freed the lock, and another caller has it by now."""
    scene.other.hold()
    later: list[Hold] = []
    scene.process.backend.fates["lock/force_release"] = ["lost"]
    scene.process.engine.handlers[Sleep] = lambda effect: later.append(scene.other.hold())
    assert scene.process.lock().force_release()
    holder = scene.process.lock().holder()
    assert holder is not None
    assert [hold.fence for hold in later] == [holder.fence]


@pytest.mark.parametrize("gap", [1.0, 60.0])
def test_failures_far_apart_are_no_outage(scene: Scene, gap: float) -> None:
    """[E18] Only a server that was unreachable for `BACKEND_WAIT` is known to be down, not one that was so now and then."""
    fates = scene.process.backend.fates["lock/acquire"] = []
    for _ in range(4):
        fates.append("down")
        with pytest.raises(LockBackendError):
            scene.process.lock().acquire(timeout=0)
        scene.time.time += gap
    if gap > 2:
        scene.process.lock().acquire(timeout=0).release()
    else:
        with pytest.raises(LockBackendError, match="known to be down"):
            scene.process.lock().acquire(timeout=0)


def test_forked_child_finds_out_for_itself(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """[E18] The thread that asks whether the server is back is its parent's; C code may fork without a word."""
    scene.process.backend.fates["lock/acquire"] = DOWN[:]
    with pytest.raises(LockBackendError):
        scene.process.lock().acquire()
    scene.process.backend.fates.clear()
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    assert scene.process.lock().acquire(timeout=0)

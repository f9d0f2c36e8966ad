"""An exception that strikes at any step of an acquire or a release leaves nothing behind, in threads and tasks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks.core.owners import running_loop
from django_redis_locks.core.registry import registry
from tests.unit.primitives.scene import Process, Scene, StoppedClock

Set = Callable[[Scene, Any], Callable[[Process], Any] | None]
"""Sets a scene, given the caller's loop; returns what happens while the caller holds the lock."""


def other_frees(scene: Scene, loop: Any) -> None:
    hold = scene.other.hold()
    scene.process.waits += [lambda: None, lambda: scene.other.free(hold)]


def fates(command: str, *fates: str) -> Set:
    def set(scene: Scene, loop: Any) -> None:
        scene.process.backend.fates[command] = list(fates)

    return set


def busy_after_a_late_request(scene: Scene, loop: Any) -> None:
    other_frees(scene, loop)
    scene.process.backend.fates["lock/acquire"] = ["late"]


def inherits(scene: Scene, loop: Any, reserved_fences: int = 0) -> None:
    process = scene.process
    hold = process.hold(loop)
    hold.reserved_fences = reserved_fences
    process.waits += [lambda: None, lambda: process.free(hold)]


def inherits_unasked(scene: Scene, loop: Any) -> None:
    inherits(scene, loop, reserved_fences=3)


def stolen(scene: Scene, loop: Any) -> None:
    inherits(scene, loop)
    scene.process.waits += [lambda: None]
    steal = scene.process.waits.pop(1)
    scene.process.waits.insert(1, lambda: (steal(), scene.other.lock().force_release()))


def heir(scene: Scene, loop: Any) -> Callable[[Process], Any]:
    return lambda process: process.sit(loop)


def lined_up(scene: Scene, loop: Any) -> Callable[[Process], Any]:
    def sit(process: Process) -> Any:
        (grant,) = registry.at(process.lock().lock_id)
        grant.hold.hand_overs = 16
        return process.sit(loop)

    return sit


SCENES: dict[str, Set] = {
    "free": fates("lock/acquire"),
    "freed while it is waited for": other_frees,
    "a lost answer": fates("lock/acquire", "lost"),
    "a late request": fates("lock/acquire", "late"),
    "a late request, then busy": busy_after_a_late_request,
    "down": fates("lock/acquire", *["down"] * 20),
    "handed over": inherits,
    "handed over with a reserved fence": inherits_unasked,
    "stolen from the one before": stolen,
    "handed on": heir,
    "lined up again": lined_up,
    "released with a lost answer": fates("lock/release", "lost"),
    "released with a late request": fates("lock/release", "late"),
    "released in an outage": fates("lock/release", "down"),
}


def in_thread(scene: Scene, set: Set) -> None:
    during = set(scene, None)
    waiter = None
    try:
        grant = scene.process.lock().acquire(timeout=3)
        if grant is not None:
            waiter = during and during(scene.process)
            grant.release()
    finally:
        if waiter is not None:
            scene.process.stand(waiter)


def in_task(scene: Scene, set: Set) -> None:
    async def main() -> None:
        during = set(scene, running_loop())
        waiter = None
        try:
            grant = await scene.process.lock().aacquire(timeout=3)
            if grant is not None:
                waiter = during and during(scene.process)
                await grant.arelease()
        finally:
            if waiter is not None:
                scene.process.stand(waiter)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def blocking_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those around the task under test are no tasks."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


def play(time: StoppedClock, drive: Any, set: Set, strike: Any = None) -> tuple[Scene, BaseException | None]:
    scene = Scene(time)
    scene.process.strike = strike
    try:
        drive(scene, set)
    except BaseException as error:  # noqa: BLE001 - judged
        return scene, error
    return scene, None


@pytest.mark.parametrize("set", SCENES.values(), ids=SCENES)
def test_sync_and_async_methods_perform_the_same_effects(set: Set, time: StoppedClock) -> None:
    """[F25] acquire and aacquire, release and arelease."""
    (sync, error), (task, other) = play(time, in_thread, set), play(time, in_task, set)
    assert (sync.process.effects, repr(error)) == (task.process.effects, repr(other))
    assert len(sync.process.effects) >= 4
    assert sync.left_behind() == task.left_behind() == []


@pytest.mark.parametrize("drive", [in_thread, in_task], ids=["sync", "async"])
@pytest.mark.parametrize("set", SCENES.values(), ids=SCENES)
def test_exception_at_any_step_leaves_nothing_behind(drive: Any, set: Set, time: StoppedClock) -> None:
    """[L16] [H3] [H21] [X2] Before each effect and after it: no waiter, no renewal, no token without an owner, no grant. A task
    is struck by a cancellation as well."""
    uncontended, _ = play(time, drive, set)
    errors = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)[: 2 + (drive is in_task)]
    for number, after, kind in itertools.product(range(len(uncontended.process.effects)), (False, True), errors):
        error = kind(number)
        scene, raised = play(time, drive, set, (number, after, error))
        where = f"{kind.__name__} {'after' if after else 'before'} {number} of {scene.process.effects}"
        assert raised is error or (raised and error in (raised.__context__, raised.__cause__)), where
        assert scene.left_behind() == [], where

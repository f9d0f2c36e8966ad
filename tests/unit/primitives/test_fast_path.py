"""The fast path does what the program does: each story is played with both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from django_redis_locks import LockError, RecordRef
from django_redis_locks.core import events, owners
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import Attempt
from django_redis_locks.core.registry import registry
from django_redis_locks.engine import local_queues
from django_redis_locks.primitives.shared import release
from tests.unit.primitives.scenario import Process, Scenario, VirtualClock

OUTCOMES = {"lost", "late", "dropped", "stale", "down", "loading", "refused"}
STORIES = [
    [],
    ["lost"],
    ["lost"] * 9,
    ["late"],
    ["dropped", *["down"] * 9],
    ["stale", "stale"],
    ["down"] * 9,
    ["loading"] * 3,
    ["refused"],
    ["slow"],
    ["held"],
    ["lost", "held"],
    ["stolen"],
    ["queued"],
    ["lost", "queued"],
    ["awaited"],
    ["lost", "awaited"],
]
"""Outcomes of the commands, and "slow": the reply takes longer than the lease; "held": by another process; "stolen"
from the holder before its release; "queued": another caller of the process has begun to wait when the reply arrives;
"awaited": another process waits when the lock is released."""


class EveryLock:
    """The locks on which a process may have a grant, so that no acquire begins with a straight attempt."""

    def __contains__(self, lock_id: object) -> bool:
        return True


def call_while_queueing(process: Process, call: Callable[[Any], Any], step: str, command: Any) -> Any:
    if command.name == step and process.lock().lock_id not in process.engine.queued:
        process.add_waiter(owners.running_loop())
    return call(command)


def register_waiter(process: Process) -> None:
    lock = process.lock()
    process.engine.listen_for(lock.lock_id)
    attempt = Attempt(Entry(f"{process.engine.subscribed_channel(lock.keys.inbox)} 1"))
    process.backend.call(lock.spec.steps.acquire("a token", "a holder", attempt))


def play(time: VirtualClock, story: list[str], step: str, *, asynchronous: bool, fast: bool, **options: Any) -> Any:
    """Acquire and release, and return what the caller, the listeners and the store notice of it."""
    time.time = 1000.0
    scenario = Scenario(time)
    process, noticed = scenario.process, []
    if "held" in story:
        scenario.other.hold(expire=1)
    lock = process.lock(**options)
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(registry, "known", EveryLock())
            patch.setattr(release, "begin_straight", lambda *_: None)
        patch.setattr(events, "listeners", [noticed.append])
        patch.setattr(local_queues, "random", lambda: 0.5)
        if "queued" in story:
            patch.setattr(process.backend, "call", partial(call_while_queueing, process, process.backend.call, step))
        process.backend.outcomes[step] = [outcome for outcome in story if outcome in OUTCOMES]
        process.backend.delays = [60.0] if "slow" in story and step == "lock/acquire" else []
        try:
            grant: Any = asyncio.run(lock.aacquire()) if asynchronous else lock.acquire()
            noticed.append((grant.hold.deadline, grant.hold.outcome_unknown, grant.hold.renew_until))
            process.backend.delays = [60.0] if "slow" in story else []
            if "awaited" in story:
                register_waiter(scenario.other)
            if "stolen" in story:
                scenario.other.lock().force_release()
            asyncio.run(grant.arelease()) if asynchronous else grant.release()
        except LockError as failure:
            noticed.append((type(failure), str(failure), vars(failure)))
    queues = [(queue.next_try, queue.wakeups) for queue in process.engine._queues._of(lock.lock_id)]
    left = [entry.partition(":")[0] for entry in scenario.leftovers()]  # without tokens
    return noticed, process.effects, time.time, queues, left


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("step", ["lock/acquire", "lock/release"])
def test_fast_path_does_what_the_program_does(time: VirtualClock, step: str, asynchronous: bool) -> None:
    """[H2] [L12] [E16] The effects in their order, the events, the errors and what is left, whatever the replies are."""
    for story in STORIES:
        for options in (
            {"wait": 0},
            {"wait": 3},
            {"expire": 5, "wait": 3},
            {"wait": 3, "renew": False, "on_lost": print},
        ):
            fast, usual = (
                play(time, story, step, asynchronous=asynchronous, fast=fast, **options) for fast in (True, False)
            )
            assert fast == usual, (story, options)


def play_writes(time: VirtualClock, story: list[str], *, asynchronous: bool, fast: bool, **options: Any) -> Any:
    """Write a record three times, and return what the caller and the store notice of it."""
    time.time = 1000.0
    scenario = Scenario(time)
    process, noticed = scenario.process, []
    ref = process.locks.record("r", wait=3)
    if "taken" in story:
        scenario.other.locks.record("r").put(None, {"of": "another process"})
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(RecordRef, "_is_fast", lambda *_: False)
        process.backend.outcomes["record/put"] = [outcome for outcome in story if outcome in {"ok", *OUTCOMES}]
        if "interrupted" in story:
            process.interruption = 0, True, KeyboardInterrupt()
        record: Any = None
        for number in range(3):  # the last ones perhaps while the server counts as down
            try:
                put = ref.aput if asynchronous else ref.put
                written: Any = put(record, {"n": number}, expire=5, **options)
                written = asyncio.run(written) if asynchronous else written
                record = written.record
                noticed.append((written.ok, record.fields, record.lease_left, record.version > 99))
            except (LockError, KeyboardInterrupt) as failure:
                noticed.append((type(failure), str(failure), vars(failure)))
    return noticed, process.effects, time.time, [entry.partition(":")[0] for entry in scenario.leftovers()]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_fast_write_does_what_the_program_does(time: VirtualClock, asynchronous: bool) -> None:
    """[H2] [H19a] As above, for records."""
    faults = [story for story in STORIES if OUTCOMES.issuperset(story)]
    for story in [*faults, ["ok", "lost"], ["ok", *["down"] * 9], ["taken"], ["taken", "lost"], ["interrupted"]]:
        for options in {}, {"show_in_admin": True}:
            fast, usual = (
                play_writes(time, story, asynchronous=asynchronous, fast=fast, **options) for fast in (True, False)
            )
            assert fast == usual, (story, options)

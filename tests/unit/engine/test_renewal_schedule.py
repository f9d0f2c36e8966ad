"""The order in which leases are renewed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from django_redis_locks.core.commands import Command
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.steps.locks import RenewLocks
from django_redis_locks.engine.renewal_schedule import RenewalSchedule
from tests.unit.core import holds


def renew_command(token: str, lease: int) -> Command[bool]:
    return Command("lock/renew", ("lock", "index"), RenewLocks(lease, (token,)), bool)


BATCH = 500


@pytest.fixture
def schedule() -> RenewalSchedule:
    return RenewalSchedule()


def a_hold(key: str = "a") -> Hold:
    return holds.a_hold(LockId("store", key), 0.0, 30_000, renew_for=60.0)


def due(schedule: RenewalSchedule, now: float) -> list[Hold | None]:
    return [lease.hold() for lease in schedule.due(now, BATCH)]


def test_holds_are_due_in_the_order_of_their_leases(schedule: RenewalSchedule) -> None:
    """[L10] The oldest first, across all lengths of leases, and none before its time."""
    first, second, short = a_hold(), a_hold(), a_hold()
    schedule.add(first, renew_command, 30_000, 100.0, 10.0)
    schedule.add(second, renew_command, 30_000, 101.0, 10.0)
    schedule.add(short, renew_command, 30_000, 101.0, 1.0)
    assert due(schedule, 101.9) == []
    assert due(schedule, 102.0) == [short]
    assert schedule.next_due() == 110.0
    assert due(schedule, 110.5) == [first]
    assert due(schedule, 200.0) == [second]
    assert due(schedule, 300.0) == []


def test_hold_scheduled_again_or_late_is_due_by_its_own_time(schedule: RenewalSchedule) -> None:
    """[L10] Python may give the address of a dead hold to a new one: its entry moves to the end. A hold whose reply
    took long is still due first. [H6] The schedule doesn't keep a hold alive."""
    reborn, slow = a_hold(), a_hold()
    schedule.add(reborn, renew_command, 30_000, 100.0, 10.0)
    schedule.add(a_hold(), renew_command, 30_000, 105.0, 10.0)
    schedule.add(reborn, renew_command, 30_000, 109.0, 10.0)
    schedule.add(slow, renew_command, 30_000, 100.0, 10.0)
    assert [due(schedule, now) for now in (112.0, 115.0, 119.0)] == [[slow], [None], [reborn]]


def test_hold_that_another_thread_has_scheduled_keeps_its_entry(schedule: RenewalSchedule) -> None:
    """[E3] [E13] The maintenance thread, which found the hold without renewal before, doesn't replace the entry."""
    hold = a_hold()
    schedule.add(hold, renew_command, 30_000, 100.0, 10.0)
    schedule.add(hold, renew_command, 30_000, 100.0, 60.0, replace=False)
    assert due(schedule, 110.0) == [hold]
    schedule.add(hold, renew_command, 30_000, 110.0, 10.0, replace=False)
    assert due(schedule, 120.0) == [hold]


def test_released_hold_is_never_due(schedule: RenewalSchedule) -> None:
    """[L8] From before its release is sent, whether or not its entry was sorted already. Removing twice has no
    effect."""
    early, late, new = a_hold(), a_hold(), a_hold()
    schedule.add(early, renew_command, 30_000, 100.0, 10.0)
    schedule.add(late, renew_command, 30_000, 101.0, 10.0)
    assert due(schedule, 110.0) == [early]
    schedule.add(new, renew_command, 30_000, 101.0, 10.0)
    for hold in (late, new, new):
        schedule.remove(hold)
    assert due(schedule, 200.0) == []


# A release or an acquire in the same thread, by a signal handler or a generator that the garbage collector closes: the
# mutex is reentrant, so it may come between any two steps


class InterruptedDict(dict[int, Any]):
    """A dict of the schedule that calls a function once, just before or after one of its operations."""

    def __init__(self, step: str, after: bool, happens: Callable[[], object]) -> None:
        super().__init__()
        self._when = step, after
        self._happens = happens

    def happen(self, step: str, after: bool) -> None:
        if (step, after) == self._when:
            self._when = "", False
            self._happens()

    def __setitem__(self, key: int, lease: Any) -> None:
        self.happen("set", False)
        super().__setitem__(key, lease)
        self.happen("set", True)

    def get(self, key: int, default: Any = None) -> Any:
        self.happen("get", False)
        try:
            return super().get(key, default)
        finally:
            self.happen("get", True)

    def pop(self, *which: Any) -> Any:
        self.happen("pop", False)
        try:
            return super().pop(*which)
        finally:
            self.happen("pop", True)

    def popitem(self) -> Any:
        self.happen("popitem", False)
        try:
            return super().popitem()
        finally:
            self.happen("popitem", True)


INTERRUPTIONS = [
    (which, step, after)
    for which, steps in (("_new", ("set", "pop", "popitem")), ("_known", ("set", "get", "pop")))
    for step in steps
    for after in (False, True)
]


def four_holds() -> list[Hold]:
    return [a_hold(key) for key in "abcd"]


def enter_all(schedule: RenewalSchedule, holds: list[Hold]) -> None:
    """Three holds in one time slot, and one in a later one."""
    for hold, period in zip(holds, (10.0, 10.1, 10.2, 20.0), strict=True):
        schedule.add(hold, renew_command, 30_000, 100.0, period)


@pytest.mark.parametrize("victim", [0, 1, 2, 3, None])
def test_acquire_and_release_in_the_middle_of_any_step_leave_the_others_renewed(victim: int | None) -> None:
    """[H13] [L10] Each is due once, the new one too. A hold that is released while it is taken out may be among
    them."""
    for which, step, after in INTERRUPTIONS:
        schedule, holds, other = RenewalSchedule(), four_holds(), a_hold()
        gone = [] if victim is None else [holds[victim]]
        happened: list[Hold] = []

        def happen(
            schedule: RenewalSchedule = schedule, other: Hold = other, gone: Any = gone, happened: Any = happened
        ) -> None:
            schedule.add(other, renew_command, 30_000, 100.0, 5.0)
            for hold in gone:
                schedule.remove(hold)
            happened.append(other)

        setattr(schedule, which, InterruptedDict(step, after, happen))
        enter_all(schedule, holds)
        schedule.remove(a_hold())
        had = [hold for now in (105.0, 110.5, 200.0, 200.0) for hold in due(schedule, now)]
        assert happened, (which, step, after)
        assert len(had) == len(set(map(id, had))), (which, step, after)
        assert {id(hold) for hold in [*holds, other] if hold not in gone} <= set(map(id, had)), (which, step, after)
        assert due(schedule, 300.0) == []


def test_error_of_a_signal_handler_is_raised(schedule: RenewalSchedule) -> None:
    """[L16] An error of any type: a worker's time limit may be a RuntimeError."""

    def handler() -> None:
        raise RuntimeError("the time limit")

    schedule._new = InterruptedDict("set", False, handler)
    with pytest.raises(RuntimeError, match="the time limit"):
        schedule.add(a_hold(), renew_command, 30_000, 101.0, 10.0)


# Time slots


def test_leases_that_end_together_are_due_together(schedule: RenewalSchedule) -> None:
    """[L10] Those that end within a sixtieth of their length are due at once, in batches: a single command for a
    thousand leases would block the server."""
    holds = [a_hold() for _ in range(BATCH + 1)]
    for number, hold in enumerate(holds):
        schedule.add(hold, renew_command, 30_000, 100.0 + number / (3 * BATCH), 10.0)
    assert schedule.next_due() == 110.0
    assert due(schedule, 109.9) == []
    first, second = due(schedule, 110.0), due(schedule, 110.0)
    assert (len(first), len(second)) == (BATCH, 1)
    assert {*first, *second} == {*holds}
    assert schedule.next_due() == inf


def test_retry_is_not_due_early(schedule: RenewalSchedule) -> None:
    """[L9] Otherwise it would be repeated until its time has come."""
    hold = a_hold()
    schedule.add(hold, renew_command, 30_000, 110.0, 0.4, exact=True)
    schedule.add(a_hold(), renew_command, 30_000, 100.0, 10.0)
    due(schedule, 110.0)
    assert schedule.next_due() == 110.4
    assert due(schedule, 110.39) == []
    assert due(schedule, 110.4) == [hold]


def test_short_holds_leave_no_entries(schedule: RenewalSchedule) -> None:
    """[H23] A hold that is released before its renewal is never sorted in, and the schedule is due once for any number
    of such holds."""
    for number in range(1000):
        hold = a_hold()
        schedule.add(hold, renew_command, 30_000, 100.0 + number / 1000, 10.0)
        schedule.remove(hold)
    assert schedule.next_due() == 110.0
    assert due(schedule, 111.0) == []
    assert schedule.next_due() == inf
    assert [schedule._new, schedule._known, schedule._slots, schedule._order] == [{}, {}, {}, []]


def test_new_hold_that_is_due_first_moves_the_next_due_time(schedule: RenewalSchedule) -> None:
    known, sooner = a_hold(), a_hold()
    schedule.add(known, renew_command, 30_000, 100.0, 10.0)
    schedule.add(known, renew_command, 30_000, 100.0, 10.0)
    assert due(schedule, 110.0) == [known]
    schedule.add(known, renew_command, 30_000, 110.0, 10.0)
    schedule.add(sooner, renew_command, 600, 100.0, 10.0)
    assert due(schedule, 110.0) == [sooner]
    schedule.add(sooner, renew_command, 600, 110.0, 1.0)
    assert schedule.next_due() == 111.0

"""Hand-over, registration, wake-ups and release in every interleaving of a few processes, with injected faults: the
real programs, queues and maintenance threads, and the memory backend's commands.

EXPLORE=full also explores larger scenarios; it takes some minutes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest

from django_redis_locks.backends.memory import store as memory_store
from django_redis_locks.backends.memory.permits import Permits
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import Waiter
from django_redis_locks.engine.local_queues import LocalQueues, WaitQueue
from django_redis_locks.primitives.shared import acquire, wait_loop
from django_redis_locks.primitives.shared.lock_spec import LockSpec
from django_redis_locks.primitives.shared.requests import Granted
from django_redis_locks.primitives.shared.wait_loop import Turns
from tests.probes.tuning import Tune
from tests.simulation import permit_mutations
from tests.simulation.lock_mutations import adopted_lock_never_doubted, grant_forgotten
from tests.unit.interleavings import process
from tests.unit.interleavings.environment import environment
from tests.unit.interleavings.explorer import Failure, explore
from tests.unit.interleavings.plans import Plan
from tests.unit.interleavings.rules import ORPHAN
from tests.unit.interleavings.transitions import Scenario


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """A garbage-collected caller leaves its queue: the time of that would differ in each replay."""
    gc.disable()
    yield
    gc.enable()


A = Plan()
TWICE = Plan(acquisitions=2)
STAYS = Plan(hold_for=3.0)
GIVES_UP = Plan(wait=1.75, acquisitions=2)
ASKS_ONCE = Plan(wait=0.0)
INSISTS = Plan(retries_release=True)
TOO_LONG = Plan(lease=5.3, hold_for=15.0)
EXTENDS = Plan(lease=5.3, extend=60.0, hold_for=15.0)
SHORT, SHORT_TOO = Plan(lease=5.3, hold_for=3.0), Plan(lease=5.3, hold_for=6.0)
IN_LOOP = Plan(loop="a loop")
FAIR = Plan(kind="fair")
FAIR_STAYS = Plan(kind="fair", hold_for=3.0)
FAIR_IN_LOOP = Plan(kind="fair", loop="a loop")
READS, WRITES = Plan(kind="read"), Plan(kind="write")
READS_STAY = Plan(kind="read", hold_for=3.0)
READS_ON = Plan(kind="write", downgrades=True)
READS_ON_FOR_LONG = Plan(kind="write", downgrades=True, hold_for=3.0)
ONE_OF_TWO = Plan(kind="semaphore", limit=2)
TWO_OF_TWO = Plan(kind="semaphore", limit=2, permits=2)

WHOLE_LEASE = 3600.0
"""The store grants locks for the lease that their waiters asked for: no renewal is explored."""

LOSSES = {"reply", "request", "late"}
ALL = LOSSES | {"cancel", "signal", "death", "disconnect", "slow"}
FULL = os.environ.get("EXPLORE") == "full"


@dataclass(frozen=True)
class Case:
    """A scenario, the processes' limit of hand-overs in a row, and the number of states that the explorer must visit at
    least."""

    scenario: Scenario
    min_states: int = 0
    hand_overs: int = 16


def case(
    *plans: tuple[Plan, ...],
    faults: int = 0,
    kinds: Any = ALL,
    min_states: int = 0,
    hand_overs: int = 16,
    max_states: float = inf,
) -> Case:
    """A case with the given contenders of each process and faults."""
    return Case(Scenario(plans, faults, frozenset(kinds), hand_overs or inf, max_states), min_states, hand_overs)


CASES = {
    "two and one": case((A, A), (A,), min_states=2_100),
    "two by one, one fault": case((A,), (A,), faults=1, min_states=4_000),
    "two by one, two faults": case((A,), (A,), faults=2, kinds=ALL - {"slow", "late"}, min_states=45_000),
    "one by two, one fault": case((A, A), faults=1, min_states=2_800),
    "one by two, two lost replies": case((A, A), faults=2, kinds={"reply"}, max_states=9_000),
    "three by one": case((A,), (A,), (A,), faults=1, kinds={"late", "cancel"}, min_states=30_000),
    "a waiter gives up and waits again": case(
        (STAYS,), (GIVES_UP,), faults=1, kinds=LOSSES | {"cancel"}, min_states=5_000
    ),
    "one attempt without waiting": case((STAYS,), (ASKS_ONCE,), faults=1, min_states=1_500),
    "a holder extends": case((EXTENDS,), (A,), faults=1, min_states=5_000),
    "a holder retries its release": case((INSISTS,), (A,), faults=2, kinds={"reply"}, max_states=9_000),
    "two and one, a cancellation": case((A, A), (A,), faults=1, kinds={"cancel", "signal"}, min_states=44_000),
    "no hand-over": case((A, A), faults=1, kinds={"cancel"}, hand_overs=0, min_states=1_400),
    "fair: two and one": case((FAIR, FAIR), (FAIR,)),
    "fair: two by one, one fault": case((FAIR,), (FAIR,), faults=1),
    "fair: one by two, one fault": case((FAIR, FAIR), faults=1),
    "fair: the lease of a dead holder ends": case((FAIR_STAYS,), (FAIR, FAIR), faults=1, kinds={"death"}),
    "rwlock: two readers and a writer": case((READS,), (READS,), (WRITES,), min_states=700),
    "rwlock: a reader and two writers": case((READS,), (WRITES,), (WRITES,), min_states=1_200),
    "rwlock: a reader and a writer, one fault": case((READS,), (WRITES,), faults=1, min_states=3_000),
    "rwlock: two readers and a writer that is cancelled or dies": case(
        (READS_STAY,), (WRITES,), (READS,), faults=1, kinds={"cancel", "death"}
    ),
    "rwlock: a writer reads on, one fault": case((READS_ON,), (WRITES,), faults=1, min_states=5_000),
    "rwlock: a writer reads on beside a reader, and one dies": case(
        (READS_ON,), (WRITES,), (READS,), faults=1, kinds={"death"}
    ),
    "semaphore: two for one permit and one for two": case(
        (ONE_OF_TWO,), (ONE_OF_TWO,), (TWO_OF_TWO,), faults=1, kinds={"cancel"}
    ),
    "semaphore: one for one permit and one for two, one fault": case(
        (ONE_OF_TWO,), (TWO_OF_TWO,), faults=1, min_states=3_000
    ),
    "semaphore: two in one process, one fault": case((ONE_OF_TWO, TWO_OF_TWO), faults=1),
    "fair and not": case((FAIR, A), (FAIR,)),
    "fair and not, one by one, one fault": case((FAIR,), (A,), faults=1),
}

MORE = {
    "two by one, two faults or late requests": case((A,), (A,), faults=2, kinds=ALL - {"slow"}, min_states=400_000),
    "two by two": case((A, A), (A, A), min_states=15_000),
    "two by two, a cancellation": case((A, A), (A, A), faults=1, kinds={"cancel"}, min_states=50_000),
    "two by two, a death or signal": case((A, A), (A, A), faults=1, kinds={"death", "signal"}, min_states=30_000),
    # Each of these has more than half a million states:
    "two by two, a lost reply": case((A, A), (A, A), faults=1, kinds={"reply"}, max_states=200_000),
    "two by two, a late request": case((A, A), (A, A), faults=1, kinds={"late"}, max_states=200_000),
    "two by two, a lost connection": case((A, A), (A, A), faults=1, kinds={"disconnect"}, max_states=200_000),
    "two and one, one fault": case((A, A), (A,), faults=1, min_states=20_000),
    "one by two, two faults": case((A, A), faults=2, kinds={"reply", "cancel", "signal"}, min_states=3_000),
    "two by one, twice": case((TWICE,), (TWICE,), faults=1, min_states=40_000),
    "three by one, one fault": case((A,), (A,), (A,), faults=1, min_states=45_000),
    "a thread and a loop": case((A, IN_LOOP), faults=1, min_states=3_000),
    "no hand-over, a late request": case((A, A), faults=1, kinds={"late"}, hand_overs=0, min_states=1_000),
    "no hand-over between two and one": case((A, A), (A,), faults=1, kinds={"cancel"}, hand_overs=0, min_states=5_000),
    "a waiter gives up, two faults": case((STAYS,), (Plan(hold_for=3.0, wait=1.5),), faults=2, min_states=40_000),
    "a holder extends, two losses": case((EXTENDS,), (A,), faults=2, kinds=LOSSES, min_states=20_000),
    "three in one": case((A, A, A), faults=1, kinds={"cancel", "signal"}, min_states=25_000),
    "fair: two by one, two faults": case((FAIR,), (FAIR,), faults=2, kinds=ALL - {"slow", "late"}),
    "fair: two and one, one fault": case((FAIR, FAIR), (FAIR,), faults=1),
    "fair: three by one, one fault": case((FAIR,), (FAIR,), (FAIR,), faults=1),
    "fair and not, a cancellation": case((FAIR, A), (FAIR,), faults=1, kinds={"cancel"}),
    "fair: a thread and a loop": case((FAIR, FAIR_IN_LOOP), faults=1),
    "rwlock: a reader and a writer, two faults": case((READS,), (WRITES,), faults=2, kinds=ALL - {"slow", "late"}),
    "rwlock: two readers and a writer, one fault": case((READS,), (READS,), (WRITES,), faults=1),
    "rwlock: a writer reads on, two faults": case((READS_ON,), (WRITES,), faults=2, kinds={"reply", "late", "signal"}),
    "semaphore: two for one permit and one for two, one fault": case(
        (ONE_OF_TWO,), (ONE_OF_TWO,), (TWO_OF_TWO,), faults=1
    ),
    "a holder retries its release among others": case(
        (INSISTS, A), (A,), faults=1, kinds={"reply", "signal"}, min_states=4_000
    ),
}


@pytest.mark.parametrize("name", [*CASES, *(MORE if FULL else ())])
def test_interleavings_violate_no_rule(name: str, tune: Tune) -> None:
    """[H2-H4, H7-H10, H12, H15, H21] [L32-L35] [L37] Never two holders at once, and no more permits than the limit; no
    waiter sleeps while the lock is free; no token or queue entry is left behind; every contender finishes; no live lock is
    reported as lost."""
    check({**CASES, **MORE}[name], tune)


def check(case: Case, tune: Tune) -> None:
    tune(max_hand_overs=case.hand_overs, grant_lease=WHOLE_LEASE)
    found = explore(case.scenario)
    assert found.complete or found.states > case.scenario.max_states
    assert found.states >= case.min_states


# The explorer finds the defect that each mutation introduces


def no_cleanup(patch: pytest.MonkeyPatch) -> None:
    """[H2] A token that a request without a reply left in the store is not deleted."""
    real = LockSpec.cleanup
    patch.setattr(LockSpec, "cleanup", lambda self, *what: real(self, process.PROCESS + "unknown", ""))


def lease_lowered(patch: pytest.MonkeyPatch) -> None:
    """[H2] A step lowers the lease of a live token."""

    def extend(self: Any, lease: int) -> None:
        self.ends = environment.now + lease / 1000

    patch.setattr(memory_store.StoredValue, "extend", extend)


def handed_lock_forgotten(patch: pytest.MonkeyPatch) -> None:
    """[H3] A waiter that leaves forgets the lock that was handed over to it."""
    real = WaitQueue.report_leftovers

    def report_leftovers(self: WaitQueue, *args: Any) -> None:
        self.handed = None
        real(self, *args)

    patch.setattr(WaitQueue, "report_leftovers", report_leftovers)


def adopted_without_request(patch: pytest.MonkeyPatch) -> None:
    """[H3] A waiter takes over a lock without a request to the store."""
    retry_command = wait_loop.retry_command

    def with_previous_token(turn: Any) -> Any:
        def get(self: Turns, *which: Any) -> Any:
            attempt = yield from turn(self, *which)
            if attempt is None or attempt.handed is None:
                return attempt
            return attempt._replace(token=attempt.handed.hold.token)

        return get

    def answer(command: Any, *args: Any) -> Any:
        if command.args.waiter is not None and command.args.waiter.handed:
            return Granted(1, False), environment.now, False
        return (yield from retry_command(command, *args))

    patch.setattr(Turns, "first", with_previous_token(Turns.first))
    patch.setattr(Turns, "next", with_previous_token(Turns.next))
    patch.setattr(wait_loop, "retry_command", answer)


def returned_lock_freed(patch: pytest.MonkeyPatch) -> None:
    """[H3] A waiter that adopted a lock without a request and gave it back still schedules its cleanup."""
    patch.setattr(Waiter, "gave_back", False)


def no_hand_over_limit(patch: pytest.MonkeyPatch) -> None:
    """[H4] The lock is handed over within a process without a limit."""
    Tune()(max_hand_overs=inf)


def registered_before_subscribed(patch: pytest.MonkeyPatch) -> None:
    """[H7] A process is registered as a waiter before it is subscribed."""
    patch.setattr(process._Subscriber, "channel_name", lambda self, channel: channel + process.PROCESS)


def report_leftovers_only_if(patch: pytest.MonkeyPatch, condition: Callable[[WaitQueue], bool]) -> None:
    """The last waiter that leaves reports leftovers only under this condition."""
    real = WaitQueue.report_leftovers

    def report_leftovers(self: WaitQueue, *args: Any) -> None:
        if condition(self):
            real(self, *args)

    patch.setattr(WaitQueue, "report_leftovers", report_leftovers)


def process_left_registered(patch: pytest.MonkeyPatch) -> None:
    """[H9] The last waiter that leaves keeps its process registered."""
    report_leftovers_only_if(patch, lambda queue: queue.granted is not None or queue.handed is not None)


def unused_grant_kept(patch: pytest.MonkeyPatch) -> None:
    """[H9] The last waiter that leaves keeps a lock that the store has just granted to its queue."""
    report_leftovers_only_if(patch, lambda queue: queue.granted is None)


def token_of_unanswered_request_granted(patch: pytest.MonkeyPatch) -> None:
    """[H2] A token that a cleanup will free stays registered."""
    patch.setattr(Entry, "invalid", property(lambda self: False, lambda self, invalid: None), raising=False)


def one_queue_for_all_loops(patch: pytest.MonkeyPatch) -> None:
    """[H12] Threads wait behind the tasks of a loop."""
    real = LocalQueues._enqueue

    def join(self: LocalQueues, waiter: Waiter, *args: Any) -> None:
        waiter.loop = waiter.line = None
        real(self, waiter, *args)

    patch.setattr(LocalQueues, "_enqueue", join)


def newcomer_takes_a_free_fair_lock(patch: pytest.MonkeyPatch) -> None:
    """[L32] A free lock goes to the next request, although others wait."""
    patch.setattr(memory_store.Store, "is_first_in_line", lambda *_: True)


def permits_not_counted(patch: pytest.MonkeyPatch) -> None:
    """[L37] The permits of the holders don't count."""
    patch.setattr(Permits, "used", 0)


def cleanup_interrupted(patch: pytest.MonkeyPatch) -> None:
    """[L16] A signal handler that raises during the cleanup of a cancelled caller ends the cleanup."""
    patch.setattr(acquire, "run_twice_if_interrupted", lambda clean_up: clean_up())


Mutation = Callable[[pytest.MonkeyPatch], None]


MUTATIONS: list[tuple[Mutation, str, Case]] = [
    (no_cleanup, ORPHAN, case((A,), (A,), faults=1, kinds={"late"})),
    (lease_lowered, "reported as lost", case((EXTENDS,), (A,), faults=1, kinds={"late"})),
    (handed_lock_forgotten, ORPHAN, case((A, A), faults=1, kinds={"cancel"})),
    (adopted_without_request, "two contenders hold|stays in the wait queue", case((SHORT, SHORT_TOO), (A,))),
    (returned_lock_freed, "reported as lost", case((TWICE, TWICE), faults=1, kinds={"signal"})),
    (adopted_lock_never_doubted, "reported as lost", case((A, A, A), faults=1, kinds={"cancel"})),
    (no_hand_over_limit, "stays within a process", case((TWICE, TWICE), (A,), hand_overs=1)),
    (registered_before_subscribed, "sleeps", case((A,), (A,))),
    (grant_forgotten, ORPHAN, case((A,), (A,))),
    (process_left_registered, "stays in the wait queue", case((TOO_LONG,), (A,), faults=1, kinds={"cancel"})),
    (unused_grant_kept, ORPHAN, case((A,), (A,), faults=1, kinds={"cancel"})),
    (token_of_unanswered_request_granted, "sleeps", case((STAYS,), (STAYS,), faults=1, kinds={"late"})),
    (one_queue_for_all_loops, "stuck", case((Plan(loop="a loop", blocked=True), A), (A,))),
    (newcomer_takes_a_free_fair_lock, "overtaken", case((FAIR_STAYS,), (FAIR, FAIR), faults=1, kinds={"death"})),
    (permit_mutations.newcomer_first, "overtaken", case((READS_STAY,), (WRITES,), (READS,))),
    (
        permit_mutations.departure_unnoticed,
        "sleeps",
        case((READS_STAY,), (WRITES,), (READS,), faults=1, kinds={"cancel"}),
    ),
    (permit_mutations.downgrade_lets_go, "reported as lost|hold the lock", case((READS_ON_FOR_LONG,), (WRITES,))),
    (permits_not_counted, "hold the lock", case((ONE_OF_TWO,), (ONE_OF_TWO,), (ONE_OF_TWO,))),
    (cleanup_interrupted, "stuck|kept", case((A, A), faults=2, kinds={"cancel", "signal"})),
]

every_mutation = pytest.mark.parametrize(
    ("mutation", "why", "case"), MUTATIONS, ids=[mutation.__name__ for mutation, *_ in MUTATIONS]
)


@every_mutation
def test_explorer_finds_the_defect_of_each_mutation(
    mutation: Mutation, why: str, case: Case, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """[H2, H3, H4, H7, H8, H9, H12] The explorer reports a violated rule if one mechanism is switched off."""
    tune(max_hand_overs=case.hand_overs, grant_lease=WHOLE_LEASE)
    mutation(monkeypatch)
    with pytest.raises(Failure, match=why):
        explore(case.scenario)


@pytest.mark.skipif(not FULL, reason="takes minutes: EXPLORE=full")
@every_mutation
def test_scenarios_of_the_mutations_pass_without_them(mutation: Mutation, why: str, case: Case, tune: Tune) -> None:
    """The violations above are caused by the mutations."""
    check(case, tune)

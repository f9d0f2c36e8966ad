"""Hand-over, registration, wake-ups and release, in every interleaving of a few processes: the real programs, queues and
janitors, and the memory backend's commands. What goes wrong on the way is a part of the scenario.

EXPLORE=full explores larger ones too, for some minutes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.core.queue_values import Attempt, QueuePosition, Waiter
from django_redis_locks.engine.engine import Engine
from django_redis_locks.engine.local_queue import LocalQueues, WaitQueue
from django_redis_locks.primitives.lock import Lock
from django_redis_locks.primitives.shared import acquisition
from django_redis_locks.primitives.shared import wait_loop as waiting
from django_redis_locks.primitives.shared.lock_programs import LockPrograms
from django_redis_locks.primitives.shared.requests import Granted
from tests.probes.tuning import Tune
from tests.simulation.lock_mutations import no_doubt, wakeup_forgotten
from tests.unit.interleavings import process
from tests.unit.interleavings.explorer import Failure, explore
from tests.unit.interleavings.moments import performer
from tests.unit.interleavings.moves import Scenario
from tests.unit.interleavings.plans import Plan
from tests.unit.interleavings.rules import ORPHAN


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """A caller that is collected gives up its seat: the collector's moment would be one that no replay repeats."""
    gc.disable()
    yield
    gc.enable()


A = Plan()
TWICE = Plan(schedule=2)
STAYS = Plan(stay=3.0)
GIVES_UP = Plan(wait=1.75, schedule=2)
ASKS_ONCE = Plan(wait=0.0)
INSISTS = Plan(insists=True)
TOO_LONG = Plan(lease=5.3, stay=15.0)
EXTENDS = Plan(lease=5.3, extend=60.0, stay=15.0)
SHORT, SHORT_TOO = Plan(lease=5.3, stay=3.0), Plan(lease=5.3, stay=6.0)
ELSEWHERE = Plan(loop="a loop")

LOSSES = {"reply", "request", "late"}
ALL = LOSSES | {"cancel", "signal", "death", "deaf", "slow"}
FULL = os.environ.get("EXPLORE") == "full"


@dataclass(frozen=True)
class Case:
    """A scenario, with the limit of hand-overs that its processes keep to. It has ``floor`` states at least: a tool that
    doesn't see them proves nothing."""

    scenario: Scenario
    floor: int = 0
    hand_overs: int = 16


def case(
    *plans: tuple[Plan, ...],
    faults: int = 0,
    kinds: Any = ALL,
    floor: int = 0,
    hand_overs: int = 16,
    most: float = inf,
) -> Case:
    """The contenders of each process, and what may go wrong."""
    return Case(Scenario(plans, faults, frozenset(kinds), hand_overs or inf, most), floor, hand_overs)


CASES = {
    "two and one": case((A, A), (A,), floor=2_300),
    "two by one, two faults": case((A,), (A,), faults=2, kinds=ALL - {"slow"}, floor=30_000),
    "one by two, one fault": case((A, A), faults=1, floor=2_800),
    "one by two, two lost replies": case((A, A), faults=2, kinds={"reply"}, floor=2_400),
    "three by one": case((A,), (A,), (A,), faults=1, kinds={"late", "cancel"}, floor=30_000),
    "who gives up and comes again": case((STAYS,), (GIVES_UP,), faults=1, kinds=LOSSES | {"cancel"}, floor=5_000),
    "who asks once": case((STAYS,), (ASKS_ONCE,), faults=1, floor=1_500),
    "who extends": case((EXTENDS,), (A,), faults=1, floor=5_000),
    "who insists": case((INSISTS,), (A,), faults=2, kinds={"reply"}, floor=2_000),
    "two and one, a cancelled one": case((A, A), (A,), faults=1, kinds={"cancel", "signal"}, floor=45_000),
    "no hand-over": case((A, A), faults=1, kinds={"cancel"}, hand_overs=0, floor=1_400),
}

MORE = {
    "two by two": case((A, A), (A, A), floor=15_000),
    "two by two, a cancelled one": case((A, A), (A, A), faults=1, kinds={"cancel"}, floor=50_000),
    "two by two, an end": case((A, A), (A, A), faults=1, kinds={"death", "signal"}, floor=30_000),
    # There are half a million states and more of these:
    "two by two, a lost reply": case((A, A), (A, A), faults=1, kinds={"reply"}, most=200_000),
    "two by two, a late request": case((A, A), (A, A), faults=1, kinds={"late"}, most=200_000),
    "two by two, a lost inbox": case((A, A), (A, A), faults=1, kinds={"deaf"}, most=200_000),
    "two and one, one fault": case((A, A), (A,), faults=1, floor=20_000),
    "one by two, two faults": case((A, A), faults=2, kinds={"reply", "cancel", "signal"}, floor=3_000),
    "two by one, twice": case((TWICE,), (TWICE,), faults=1, floor=40_000),
    "three by one, one fault": case((A,), (A,), (A,), faults=1, floor=45_000),
    "a thread and a loop": case((A, ELSEWHERE), faults=1, floor=3_000),
    "no hand-over, a late request": case((A, A), faults=1, kinds={"late"}, hand_overs=0, floor=1_000),
    "no hand-over between two and one": case((A, A), (A,), faults=1, kinds={"cancel"}, hand_overs=0, floor=5_000),
    "who stays, two faults": case((STAYS,), (Plan(stay=3.0, wait=1.5),), faults=2, floor=40_000),
    "who extends, two losses": case((EXTENDS,), (A,), faults=2, kinds=LOSSES, floor=20_000),
    "three in one": case((A, A, A), faults=1, kinds={"cancel", "signal"}, floor=25_000),
    "who insists with others": case((INSISTS, A), (A,), faults=1, kinds={"reply", "signal"}, floor=4_000),
}


@pytest.mark.parametrize("name", [*CASES, *(MORE if FULL else ())])
def test_no_interleaving_breaks_a_rule(name: str, tune: Tune) -> None:
    """[H2-H4, H7-H10, H12, H15, H21] Never two inside; nobody sleeps while the lock is free; nothing is left behind;
    everybody comes to an end; nobody is told without reason that he lost it."""
    check({**CASES, **MORE}[name], tune)


def check(case: Case, tune: Tune) -> None:
    tune(hand_overs=case.hand_overs)
    found = explore(case.scenario)
    assert found.complete or found.states > case.scenario.most
    assert found.states >= case.floor


# The tool sees what it is made for: each rule, switched off, is a story that it tells.


def no_sweep(patch: pytest.MonkeyPatch) -> None:
    """[H2] Nobody deletes what an unanswered request left."""

    real = LockPrograms._cleanup
    patch.setattr(LockPrograms, "_cleanup", lambda self, token: real(self, process.ME + "nobody's"))


def lowered(patch: pytest.MonkeyPatch) -> None:
    """[H2] A step lowers the lease of a live token."""

    def extend(self: Any, lease: int) -> None:
        self.ends = performer.now + lease / 1000

    patch.setattr(memory.StoredValue, "extend", extend)


def dropped(patch: pytest.MonkeyPatch) -> None:
    """[H3] An heir that leaves forgets what was handed to it."""
    real = WaitQueue.report_leftovers

    def report_leftovers(self: WaitQueue, *args: Any) -> None:
        self.handed = None
        real(self, *args)

    patch.setattr(WaitQueue, "report_leftovers", report_leftovers)


def taken_unasked(patch: pytest.MonkeyPatch) -> None:
    """[H3] An heir believes that the lock is his without asking for it."""
    question, asking = Lock._attempt_command, waiting.retry_command

    def ask_as_the_one_before(self: Lock, ask: Any, turn: Attempt) -> Any:
        if turn.handed is not None:
            ask.token = turn.handed.hold.token
        return question(self, ask, turn)

    def answer(command: Any, *args: Any) -> Any:
        if command.args[3:4] not in {(), ("",)}:
            in_line = QueuePosition(command.args[5])
            return Granted(1, False, in_line), performer.now, False
        return (yield from asking(command, *args))

    patch.setattr(Lock, "_attempt_command", ask_as_the_one_before)
    patch.setattr(waiting, "retry_command", answer)


def given_back_and_freed(patch: pytest.MonkeyPatch) -> None:
    """[H3] Who took a lock over without a question, and gave it back, has the janitor free it all the same."""
    patch.setattr(Waiter, "gave_back", False)


def no_limit(patch: pytest.MonkeyPatch) -> None:
    """[H4] The lock is handed over as often as anybody waits for it."""
    Tune()(hand_overs=inf)


def named_too_early(patch: pytest.MonkeyPatch) -> None:
    """[H7] A process is registered before it listens."""
    patch.setattr(process._Subscriber, "channel_name", lambda self, channel: channel + process.ME)


def only_if(patch: pytest.MonkeyPatch, unsettled: Callable[[WaitQueue], bool]) -> None:
    """The last one who leaves tells nothing unless it is for this reason."""
    real = WaitQueue.report_leftovers

    def report_leftovers(self: WaitQueue, *args: Any) -> None:
        if unsettled(self):
            real(self, *args)

    patch.setattr(WaitQueue, "report_leftovers", report_leftovers)


def left_behind(patch: pytest.MonkeyPatch) -> None:
    """[H9] The last waiter leaves his process registered."""
    only_if(patch, lambda queue: queue.wakeups != queue.wakeups_answered or queue.handed is not None)


def kept_to_itself(patch: pytest.MonkeyPatch) -> None:
    """[H9] A woken head that leaves doesn't pass the wake-up on."""
    only_if(patch, lambda queue: bool(queue.address) or queue.handed is not None)


def told_in_vain(patch: pytest.MonkeyPatch) -> None:
    """[H9] A wake-up for a process that doesn't wait any more isn't passed on."""
    patch.setattr(Engine, "on_message", lambda self, number, lock: self._queues.wake(process.PLACE, number))


def one_queue(patch: pytest.MonkeyPatch) -> None:
    """[H12] Threads queue up behind the tasks of a loop."""
    real = LocalQueues._enqueue

    def join(self: LocalQueues, waiter: Waiter, *args: Any) -> None:
        waiter.loop = None
        real(self, waiter, *args)

    patch.setattr(LocalQueues, "_enqueue", join)


def one_number(patch: pytest.MonkeyPatch) -> None:
    """A new queue answers to the number of an old one."""
    patch.setattr(WaitQueue, "number", property(lambda self: "1", lambda self, number: None), raising=False)


def cleared_once(patch: pytest.MonkeyPatch) -> None:
    """[L16] A signal handler that raises while a cancelled one clears up keeps him from it."""
    patch.setattr(acquisition, "run_twice_if_interrupted", lambda clear_away: clear_away())


Mutation = Callable[[pytest.MonkeyPatch], None]


MUTATIONS: list[tuple[Mutation, str, Case]] = [
    (no_sweep, ORPHAN, case((A,), (A,), faults=1, kinds={"late"})),
    (lowered, "lost the lock", case((EXTENDS,), (A,), faults=1, kinds={"late"})),
    (dropped, ORPHAN, case((A, A), faults=1, kinds={"cancel"})),
    (taken_unasked, "two are inside", case((SHORT, SHORT_TOO), (A,))),
    (given_back_and_freed, "lost the lock", case((TWICE, TWICE), faults=1, kinds={"signal"})),
    (no_doubt, "lost the lock", case((A, A, A), faults=1, kinds={"cancel"})),
    (no_limit, "stays within a process", case((TWICE, TWICE), (A,), hand_overs=1)),
    (named_too_early, "sleeps", case((A,), (A,))),
    (wakeup_forgotten, "sleeps", case((A,), (A,))),
    (left_behind, "stays in line", case((TOO_LONG,), (A,), faults=1, kinds={"cancel"})),
    (kept_to_itself, "sleeps", case((A,), (A,), (A,), faults=1, kinds={"cancel"})),
    (told_in_vain, "sleeps", case((A,), (A,), (A,), faults=1, kinds={"cancel"})),
    (one_queue, "stuck", case((Plan(loop="a loop", blocked=True), A), (A,))),
    (one_number, "sleeps", case((STAYS,), (GIVES_UP,))),
    (cleared_once, "stuck|kept", case((A, A), faults=2, kinds={"cancel", "signal"})),
]

every_mutation = pytest.mark.parametrize(
    ("mutation", "why", "case"), MUTATIONS, ids=[mutation.__name__ for mutation, *_ in MUTATIONS]
)


@every_mutation
def test_a_rule_that_is_switched_off_is_found(
    mutation: Mutation, why: str, case: Case, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """[H2, H3, H4, H7, H8, H9, H12] Else the silence of the other tests would mean nothing."""
    tune(hand_overs=case.hand_overs)
    mutation(monkeypatch)
    with pytest.raises(Failure, match=why):
        explore(case.scenario)


@pytest.mark.skipif(not FULL, reason="takes minutes: EXPLORE=full")
@every_mutation
def test_it_is_the_mutation_that_was_found(mutation: Mutation, why: str, case: Case, tune: Tune) -> None:
    """The same scenarios are fine as things are."""
    check(case, tune)

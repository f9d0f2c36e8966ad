"""Triggers of the known defects of jobs. A trigger replaces the choices of the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.broker import Message
from tests.simulation.scheduler import current

if TYPE_CHECKING:
    from tests.simulation.job_world import JobWorld


class Trigger(NamedTuple):
    scene: str
    begin: Callable[[JobWorld], None]


def _without_workers(world: JobWorld, until: float) -> None:
    """Run no workers until this time."""
    workers, world.broker.workers = world.broker.workers, []

    def work() -> None:
        world.broker.workers = workers
        world.broker.dispatch()

    world.scheduler.at(until, work)


def own_call(world: JobWorld) -> None:
    """The task class has a ``__call__`` that calls ``run``."""
    world.web[0].thread("s0", lambda: world.submit("s0"))


def death_before_the_result(world: JobWorld) -> None:
    """A worker dies between the release and the stored result."""
    world.late = type(world.task).acks_late = True
    world.web[0].thread("s0", lambda: world.submit("s0"))
    takes = iter([1.0])
    world.store_takes = lambda: next(takes, 0.001)

    def kill() -> None:
        for worker in list(world.current):
            world.kill(worker)

    world.plans = ["brief"]
    world.scheduler.at(0.5, kill)


def plain_message_beside_replaced(world: JobWorld) -> None:
    """Each of three submissions replaces the previous one; a message without header comes first."""
    world.broker.send(Message("plain", (), {}, 0, 3.0))
    for number in range(3):
        world.web[0].thread(f"s{number}", lambda number=number: world.submit(f"s{number}"), 0.1 + 0.1 * number)
    _without_workers(world, 2.0)
    sent = world.broker.send

    def in_order(message: Message) -> None:
        if message.due < 3.0:
            message.due = 10.0 + len(world.broker.sent)
        sent(message)

    world.broker.send = in_order

    def count() -> None:
        if len(world.rules.runs) > 2:
            world.scheduler.violation(f"{[run.id for run in world.rules.runs]} were run, but two are enough")

    world.scheduler.at(300.0, count)


def revoked_and_submitted_again(world: JobWorld) -> None:
    """A queued job is revoked less than a second after its state was read."""
    _without_workers(world, 10.0)

    def submit() -> None:
        world.submit("s0")
        world.submit("s1")
        current().sleep(0.3)
        revoked = world.rules.submitted[0].id
        world.rules.revoked.add(revoked)
        world.results.store(revoked, "REVOKED", "by hand")
        current().sleep(0.3)
        world.submit("s2")
        if world.rules.submitted[-1].id == revoked:
            world.scheduler.violation("a submission returns a job that was revoked before")

    world.web[0].thread("s", submit)


def times_inherited(world: JobWorld) -> None:
    """The first submission has a countdown or expires soon; the second one has neither."""
    _without_workers(world, 10.0)
    first = world.random.choice([{"expires": 1}, {"countdown": 4000}])

    def submit() -> None:
        world.submit("s0", **first)
        current().sleep(0.2)
        world.submit("s1")

    def ran() -> None:
        if not world.rules.runs:
            world.scheduler.violation("a submission that doesn't expire was never run, or late")

    def once() -> None:
        if len(world.rules.runs) > 1:
            world.scheduler.violation("a job was run twice")

    world.web[0].thread("s", submit)
    world.scheduler.at(300.0, ran)
    world.scheduler.at(4002.0, once)


TRIGGERS = {
    "K1": Trigger("with a call of its own", own_call),
    "K2": Trigger("three at once", death_before_the_result),
    "K4": Trigger("replaced", plain_message_beside_replaced),
    "K5": Trigger("three at once", revoked_and_submitted_again),
    "K7": Trigger("three at once", times_inherited),
}

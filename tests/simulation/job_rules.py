"""The rules for jobs, which hold under all faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery_locks.job import Job, parse_job
from django_redis_locks import Record
from tests.simulation.job_scenes import SCENES

if TYPE_CHECKING:
    from tests.simulation.job_world import JobWorld, Submitted
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Actor

LEASE = 30.0

FINAL = ("success", "brief", "long", "fail", "again")


@dataclass
class Run:
    """One execution of the task's body."""

    id: str
    began: float
    actor: Actor
    held: Any
    outcome: str = ""
    ended: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether it runs and holds the key, and its permit if there are several, by its own knowledge."""
        process = self.actor.process
        if self.outcome or process.dead or process.stopped or self.held is None:
            return False
        permit = self.held.permit
        holds = [self.held.job.stored_record._hold, *([] if permit is None else [permit.hold])]
        return all(hold is not None and hold.loss_reason is None and process.now() < hold.deadline for hold in holds)


class JobRules:
    """Checks the rules in one job world.

    Attributes:
        lossy: a worker died after an early acknowledgement, so Celery itself lost a message.
        revoked: ids of jobs that were revoked by hand.
    """

    def __init__(self, world: JobWorld) -> None:
        self.world = world
        self.runs: list[Run] = []
        self.submitted: list[Submitted] = []
        self.lossy = False
        self.revoked: set[str] = set()

    def begin_run(self, id: str, actor: Actor, held: Any) -> Run:
        scheduler = self.world.scheduler
        run = Run(id, scheduler.now, actor, held)
        if held is None:
            scheduler.violation(f"the body of {id} runs without its key")
        others = [other.id for other in self.runs if other.holds]
        limit = self.world.task.lock_limit
        if len(others) >= limit and run.holds:
            scheduler.violation(f"{'two' if limit == 1 else limit + 1} bodies at once: {id} and {others}")
        self.runs.append(run)
        return run

    def ends(self, run: Run, outcome: str) -> None:
        run.outcome, run.ended = outcome, self.world.scheduler.now
        self.world.scheduler.log("the body of %s ends: %s", run.id, outcome)

    def died(self, process: Process) -> None:
        for run in self.runs:
            if run.actor.process is process and not run.outcome:
                run.outcome = "died"

    def check_end(self) -> None:
        scheduler = self.world.scheduler
        for problem in self._problems() if not scheduler.problems else ():
            scheduler.violation(problem)

    def _problems(self) -> Iterator[str]:
        world = self.world
        for process in world.processes:
            for actor in process.living:
                if actor.name != "maintenance" and not process.dead:
                    yield f"{actor.name} of {process.name} never ends: {actor.doing}"
        if world.broker.messages:
            yield f"messages are left: {world.broker.messages}"
        if not self.lossy:
            yield from self._lost()

    def _lost(self) -> Iterator[str]:
        """Records that would stay for ever, and jobs that weren't run."""
        for _, job in self.records():
            if job.state in ("reserved", "queued", "running") and job.stored_record.lease_left > 60.0:
                yield f"stuck: {job}"
        for submitted in self.submitted:
            yield from self._about(submitted)
        if SCENES[self.world.scene].get("each"):
            ran = {run.id for run in self.runs if run.outcome in ("success", "fail")}
            yield from (f"{submitted.id} was never run" for submitted in self.submitted if submitted.id not in ran)

    def records(self) -> Iterator[tuple[str, Job]]:
        """The job records in the store, with their keys."""
        store = self.world.server.store
        for key in list(store.records):
            found = store.find(key)
            if found is not None and found.kind == "record":
                job = parse_job(Record(found.fence, json.loads(found.holder), found.ms_left() / 1000))
                if job is not None:
                    yield key, job

    def _about(self, submitted: Submitted) -> Iterator[str]:
        world = self.world
        if submitted.id not in world.broker.sent:
            yield f"{submitted.id} was never sent"
        # the message of a job that had begun is redelivered, and may have expired since
        times = SCENES[world.scene].get("options") and not world.faults.counts["death"]
        if not submitted.expires and (times or not submitted.deduplicated):
            # without the store a worker may skip the job for one that runs, or that couldn't release its key
            blind = bool(world.faults.disturbances)
            runs = [run for run in self.runs if run.outcome in FINAL]
            if not any(
                (run.ended + LEASE if blind else run.began) >= submitted.began or run.id == submitted.id for run in runs
            ):
                yield f"{submitted.id} was accepted, and neither it nor a later one ran"
        if world.results.get_state(submitted.id) == "PENDING" and (submitted.counted or world.late):
            yield f"{submitted.id} has no result"
        if submitted.counted and not submitted.expires and world.results.get_state(submitted.id) == "REVOKED":
            yield f"{submitted.id}, which a chord needs, is revoked"

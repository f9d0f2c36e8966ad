"""Celery in one greenlet per actor, of which one at a time does one step: a store command, a message, a body's begin or end.

Code of the product runs as it is; the store's records, the broker, the results and the clock are this world's own. Which
actor goes next, who dies, which reply is lost and which message comes twice is decided by a seed, so a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from celery import Celery
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import EncodeError, OperationalError

from celery_locks import IdempotentTask, beat, request, start, submission
from celery_locks.job import WAITING, Job
from celery_locks.keys import key_of
from django_redis_locks import LockBackendError, Record, clock
from tests.celery.unit.actors import LATEST, LEASE, Actor, Message, Place, Refused, Results, Stored


@dataclass
class Submitted:
    """What a submitter was told."""

    began: int
    """The step at which it asked."""
    id: str
    deduplicated: bool
    counted: bool


@dataclass
class Run:
    """A body."""

    id: str
    began: int
    actor: Actor
    outcome: str = ""
    ended: int = 0


class World:
    """Everything, and the choice of what comes next. ``chances``: of each kind of trouble, how often at most."""

    def __init__(self, seed: int, *, late: bool = True, chances: dict[str, int] | None = None, **options: Any) -> None:
        self.random = Random(seed)
        self.late = late
        self.chances = dict(chances or {})
        self.blind = "store" in self.chances
        self.now = 1000.0
        self.version = 0
        self.steps = 0
        self.numbers = iter(range(10_000))
        self.records: dict[str, Stored] = {}
        self.messages: list[Message] = []
        self.sent: set[str] = set()
        self.actors: list[Actor] = []
        self.runs: list[Run] = []
        self.told: list[Submitted] = []
        self.broken: list[str] = []
        self.story: list[str] = []
        self.pasts: list[Message] = []
        self.plans: dict[str, list[str]] = {}
        """Of a task's id: what its bodies do, one after the other; by default they succeed."""
        self.lossy = False
        """A message was acknowledged, and its worker died: Celery's own loss."""
        self.current: Actor | None = None
        self.results = Results()
        self.app = Celery("stepping", broker="memory://", set_as_current=False)
        self.app.send_task = self._publish
        base = options.pop("base", IdempotentTask)

        def run(task: Any, *args: Any, **kwargs: Any) -> Any:
            return self._body(task)

        self.task = self.app.task(run, bind=True, base=base, name="t", shared=False, lock_key="k", **options)
        self.app.finalize()
        self.task = self.app.tasks["t"]
        self.task.backend = self.results
        self.task.AsyncResult = lambda task_id: SimpleNamespace(id=task_id)
        self.key = key_of(self.task, (), {}, None)[0]

    @contextmanager
    def alive(self) -> Iterator[World]:
        """The product's doors to the outside lead into this world."""
        place = lambda _, key: Place(self, key)  # noqa: E731
        run_place = lambda task, key: Place(self, f"{key}:run" if task.unique_until == "start" else key)  # noqa: E731
        spot = lambda pid="": str(pid or self.me().name)  # noqa: E731
        ids = lambda: f"i{next(self.numbers)}"  # noqa: E731
        with (
            mock.patch.multiple(clock, now=lambda: self.now, wall=lambda: self.now),
            mock.patch.multiple(
                start, place_of=place, run_place_of=run_place, spot=spot, holder_here=lambda _: (), uuid=ids
            ),
            mock.patch.multiple(request, place_of=place, run_place_of=run_place, spot=spot),
            mock.patch.multiple(submission, place_of=place, uuid=ids),
            mock.patch.object(start, "nap", self._nap),
            mock.patch.object(beat, "current", return_value=None),
        ):
            submission._looked.clear()
            yield self
            for actor in self.actors:
                actor.dead = True
                while not actor.over:
                    actor.go()
        self.app.close()

    def me(self) -> Actor:
        assert self.current is not None
        return self.current

    def fault(self, kind: str) -> str:
        """Whether this step goes wrong, ``"before"`` it had its effect, or ``"after"``."""
        if self.chances.get(kind, 0) and self.random.random() < 0.15:
            self.chances[kind] -= 1
            how = self.random.choice(["before", "after"])
            self.story.append(f"    {kind} fails {how} it")
            return how
        return ""

    # What actors do

    def submitter(self, name: str, *, counted: bool = False, **options: Any) -> None:
        def submit() -> None:
            self.me().pause("submit")
            began = self.steps
            try:
                given = {"task_id": f"{name}!", "chord": {"c": 1}} if counted else {}
                result = self.task.apply_async(**given, **options)
            except (LockBackendError, OperationalError, EncodeError) as failure:
                self.story.append(f"    {name} is told {failure!r}")
                return
            self.story.append(f"    {name} is told {result.id}{' (duplicate)' if result.deduplicated else ''}")
            self.told.append(Submitted(began, result.id, result.deduplicated, counted))

        self._begin(Actor(name, self, submit))

    def _begin(self, actor: Actor) -> None:
        self.actors.append(actor)
        actor.go()

    def _publish(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        self.me().pause(f"publish {options['task_id']}")
        if self.chances.get("encode", 0) and not hasattr(self.me(), "message") and self.random.random() < 0.3:
            self.chances["encode"] -= 1
            self.story.append("    it can't be encoded")
            raise EncodeError("no")
        fault = self.fault("broker")
        if fault != "before":
            due = self.now + (options.get("countdown") or 0.0)
            message = Message(
                options["task_id"],
                tuple(args or ()),
                dict(options.get("headers") or {}),
                options.get("retries") or 0,
                due,
            )
            message.counted = bool(options.get("chord"))
            self.messages.append(message)
            self.sent.add(message.id)
        if fault:
            raise OperationalError("timeout")
        return self.task.AsyncResult(options["task_id"])

    def _nap(self, seconds: float) -> None:
        until = self.now + seconds
        self.me().pause("nap", lambda: self.now >= until, until)

    def _body(self, task: Any) -> str:
        run = Run(str(task.request.id), self.steps, self.me())
        others = [other for other in self.runs if not other.outcome and not other.actor.dead and not other.actor.over]
        if others:
            self.broken.append(f"two bodies at once: {run.id} and {[other.id for other in others]}")
        self.runs.append(run)
        plans = self.plans.get(run.id.split("!")[0]) or self.plans.get("")
        plan = plans.pop(0) if plans else "success"
        self.story.append(f"    the body of {run.id} begins: {plan}")
        self.me().pause(f"body of {run.id}")
        try:
            if plan == "retry":
                try:
                    self.me().pause(f"retry of {run.id}")
                    task.retry(countdown=self.random.choice([0, 20]), max_retries=None)
                except Reject:  # it can't be sent: Celery fails the task
                    plan = "fail"
                    raise
            if plan == "again":
                task.delay()
                self.me().pause(f"rest of the body of {run.id}")
            if plan == "long":
                self._later(self.now + 10.0)
            if plan == "requeue":
                raise Reject("later", requeue=True)
            if plan == "fail":
                raise Refused(run.id)
            return run.id
        finally:
            if plan == "retry":
                self.me().pause(f"last lines of {run.id}")
            run.outcome, run.ended = (plan if not self.me().dead else "died"), self.steps
            self.story.append(f"    the body of {run.id} ends: {run.outcome}")

    def worker(self, message: Message) -> None:
        def work() -> None:
            context = Context(
                {
                    "id": message.id,
                    "args": message.args,
                    "kwargs": {},
                    "headers": message.headers,
                    "retries": message.tries,
                    "delivery_info": {"redelivered": message.redelivered, "exchange": "", "routing_key": "q"},
                    "called_directly": False,
                    "is_eager": False,
                    "timelimit": (None, None),
                    "chord": {"c": 1} if message.counted else None,
                    "hostname": "h",
                }
            )
            self.task.request_stack.push(context)
            try:
                result = self.task(*message.args)
            except Reject as reject:
                if reject.requeue and self.late:
                    self._comes_back(message)
            except (Ignore, Retry):
                pass
            except Exception as failure:  # noqa: BLE001 - Celery stores it
                self.me().pause(f"store the failure of {message.id}")
                self.results.store(message.id, "FAILURE", failure)
            else:
                self.me().pause(f"store the result of {message.id}")
                self.results.store(message.id, "SUCCESS", result)

        actor = Actor(f"w{next(self.numbers)}", self, work)
        actor.message = message  # type: ignore[attr-defined]
        self.story.append(f"  {actor.name} takes {message}")
        self._begin(actor)

    def _comes_back(self, message: Message) -> None:
        self.messages.append(Message(**{**vars(message), "redelivered": True, "due": self.now}))

    def kill(self, actor: Actor) -> None:
        self.story.append(f"  {actor.name} dies at: {actor.where}")
        for run in self.runs:
            if run.actor is actor and not run.outcome:
                run.outcome = "died"
        for stored in self.records.values():
            if stored.owner is actor:
                stored.owner, stored.ends = None, self.now + LEASE
        actor.dead = True
        actor.go()
        message = getattr(actor, "message", None)
        if message is None:
            return
        self.lossy |= not self.late
        if self.random.random() < 0.5:  # its parent notices
            fake = SimpleNamespace(
                task=self.task,
                worker_pid=actor.name,
                id=message.id,
                args=message.args,
                kwargs={},
                _context=SimpleNamespace(headers=message.headers, retries=message.tries),
            )

            def reap() -> None:
                request.free_dead_run(fake, back=self.late)
                if self.late:
                    self._comes_back(message)

            self._begin(Actor(f"parent of {actor.name}", self, reap))
        elif self.late:
            self._comes_back(message)

    def write(self, job: Job, lease: float = LEASE) -> None:
        """Have a record there from the beginning."""
        self.version += 1
        self.records[self.key] = Stored(Record(self.version, job.fields(), lease), self.now + lease, None)

    # What comes next

    def go_on(self) -> bool:
        """One step. Whether there was one to do."""
        self.steps += 1
        living = [actor for actor in self.actors if not actor.over]
        ready = [actor for actor in living if actor.ready]
        due = [message for message in self.messages if message.due <= self.now]
        busy = sum(hasattr(actor, "message") for actor in living)
        choices: list[Callable[[], None]] = [lambda actor=actor: self._step(actor) for actor in ready]
        if busy < 2:
            choices += [lambda message=message: self._deliver(message) for message in due]
        if choices:
            mortal = [actor for actor in ready if not actor.name.startswith("parent")]
            if mortal and self._happens("death"):
                self.kill(self.random.choice(mortal))
            elif self.pasts and self._happens("copy"):
                copy = self.random.choice(self.pasts)
                self.story.append(f"  a copy comes of {copy.id}")
                self._comes_back(copy)
            elif self._happens("pause"):
                self._later(self.now + self.random.choice([1.0, 12.0, 40.0]))
            else:
                self.random.choice(choices)()
            return True
        moments = [actor.until for actor in living] + [message.due for message in self.messages]
        if not moments:
            return False
        self._later(max(self.now + 0.01, min(moments)))
        return self.now < 1000.0 + LATEST and self.steps < 3000

    def _happens(self, kind: str) -> bool:
        if not self.chances.get(kind) or self.random.random() > 0.06:
            return False
        self.chances[kind] -= 1
        return True

    def _later(self, moment: float) -> None:
        self.now = moment
        self.story.append(f"  it is {moment:.1f}")

    def _step(self, actor: Actor) -> None:
        self.story.append(f"  {actor.name}: {actor.where}")
        actor.go()

    def _deliver(self, message: Message) -> None:
        self.messages.remove(message)
        self.pasts.append(message)
        self.worker(message)

    # What must hold at the end

    def verdict(self) -> list[str]:
        found = list(self.broken)
        if any(not actor.over for actor in self.actors) or self.messages:
            found.append(f"it never ends: {[a.where for a in self.actors if not a.over]}, {self.messages}")
        for key in list(self.records):
            job = Place(self, key)._found()
            if job is None or job.state == "unsure":
                continue
            if job.state in (*WAITING, "running") and job.known.lease_left > 60.0 and not self.lossy:
                found.append(f"stuck: {job}")
        if not self.lossy:
            found += [problem for told in self.told for problem in self._about(told)]
        return found

    def _about(self, told: Submitted) -> Iterator[str]:
        if told.id not in self.sent:
            yield f"{told.id} was never sent"
        if not told.deduplicated:
            final = ("success", "fail", "again")
            # who couldn't ask the store may be skipped for one that runs already: the worker decides
            runs = [run for run in self.runs if run.outcome in final]
            if not any((run.ended if self.blind else run.began) >= told.began or run.id == told.id for run in runs):
                yield f"{told.id} was accepted, and neither it nor a later one ran"
        if told.counted and self.results.get_state(told.id) == "PENDING":
            yield f"{told.id}, which a chord counts on, has no result"

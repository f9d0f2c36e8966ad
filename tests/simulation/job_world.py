"""The job world: submitters and workers of Celery that share a key, with faults that the seed chooses.

Submission, start, run and the handling of dead runs are the package's code, with records on the simulated server; the
broker, the results and the processes are simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import EncodeError, OperationalError

from celery_locks import request
from celery_locks.keys import key_of
from celery_locks.run import confirm
from celery_locks.times import times_of
from django_redis_locks import LockBackendError, clock
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.conf import AliasSettings
from tests.simulation.broker import Broker, Message, Results
from tests.simulation.faults import Faults
from tests.simulation.job_defects import TRIGGERS
from tests.simulation.job_rules import LEASE, JobRules, Run
from tests.simulation.job_scenes import SCENES, options_of
from tests.simulation.network import LOCATION, Server
from tests.simulation.process import Process
from tests.simulation.scheduler import Scheduler, current

if TYPE_CHECKING:
    from tests.simulation.installation import Installation

LATEST = 5000.0
"""Seconds after which all work must be done."""


SUBMISSIONS = (3, 16, 22)
"""Numbers of submissions. A later one may repair a lost job, so few submissions find more defects than many."""


QUEUE_DELAYS = (0.0, 0.0, 0.02, 0.1, 1.0)
"""Minimum seconds that a message stays in its queue."""


class BodyFailed(Exception):
    """Raised by a body that fails."""


@cache
def task_of(name: str) -> Any:
    """The task of a scene. Its bodies, messages and results belong to the running world."""
    app = Celery("simulation", broker="memory://", set_as_current=False)

    def run(task: Any, *args: Any, **kwargs: Any) -> Any:
        return task.world.body(task)

    def send(name: str, *args: Any, **options: Any) -> Any:
        return task.world.publish(name, *args, **options)

    app.send_task = send
    app.task(run, bind=True, name="t", shared=False, lock_key="k", **options_of(SCENES[name]))
    app.finalize()
    task = app.tasks["t"]
    type(task).AsyncResult = staticmethod(lambda task_id: SimpleNamespace(id=task_id))
    return task


@dataclass
class Submitted:
    """The result that a submitter got."""

    began: float
    id: str
    deduplicated: bool
    counted: bool
    expires: bool = False


class JobWorld:
    """One simulation."""

    def __init__(
        self, seed: int, installation: Installation, triggers: frozenset[str] = frozenset(), scene: str = ""
    ) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        self.random = random = scheduler.random
        self.faults = Faults(scheduler)
        self.server = Server(scheduler, self.faults)
        installation.begin(scheduler, self.server)
        self.triggers = triggers
        self.scene = scene or self._choose_scene()
        self.chances = dict(SCENES[self.scene].get("chances", {}))
        self.plans = list(SCENES[self.scene].get("plans", ()))
        self.late = random.random() < 0.8 or "requeue" in self.plans
        """Whether messages are acknowledged after the run (acks_late)."""
        self.task = task_of(self.scene)
        type(self.task).world = self
        type(self.task).acks_late = self.late
        self.task.backend = self.results = Results()
        self.key = key_of(self.task, (), {}, None)[0]
        settings = AliasSettings(
            "default",
            MemoryBackend,
            LOCATION,
            {},
            "lock",
            int(1000 * LEASE),
            10.0,
            3600.0,
            False,
            False,
            False,
            (),
            "answer",
        )
        self._new_process = partial(Process, self.server, settings=settings)
        self.broker = Broker(scheduler, self._deliver)
        workers = ("w1", "w2") if self.task.lock_limit == 1 else ("w1", "w2", "w3", "w4")
        self.broker.workers = [self._new_process(name) for name in workers]
        self.web = [self._new_process(name) for name in ("web1", "web2")]
        self.rules = JobRules(self)
        self.current: dict[Process, Message] = {}
        self.expired: set[str] = set()

    @property
    def processes(self) -> list[Process]:
        return self.scheduler.processes

    def _choose_scene(self) -> str:
        for trigger in sorted(self.triggers):
            return TRIGGERS[trigger].scene
        return self.random.choice([name for name, scene in SCENES.items() if not scene.get("known")])

    def run(self) -> None:
        self.scheduler.log("the scene: %s", self.scene)
        if self.triggers:
            for trigger in sorted(self.triggers):
                TRIGGERS[trigger].begin(self)
            self.scheduler.run(1000.0)
        else:
            self._populate()
            self._disasters()
        self.scheduler.run_until(self.is_quiet, LATEST, step=50.0)
        self.rules.check_end()

    def _populate(self) -> None:
        counted = SCENES[self.scene].get("counted", ())
        for number in range(self.random.choice(SUBMISSIONS)):
            process = self.random.choice(self.web)
            after = self.random.choice([0.0, 0.0, 0.001, 0.005, 1.0]) + number // 3 * self.random.choice(
                [0.0, 1.0, 10.0]
            )
            options = self.random.choice(SCENES[self.scene].get("options", [{}]))
            submit = partial(self.submit, f"s{number}", number % 3 in counted, **options)
            process.thread(f"s{number}", submit, after)

    def close(self) -> None:
        for process in self.processes:
            if not process.dead:
                process.kill()
        self.server.forget()
        type(self.task).world = None

    def is_quiet(self) -> bool:
        """Whether no message is left and nothing runs."""
        busy = any(process.busy for process in self.processes if not process.dead)
        return not busy and not self.broker.messages

    # Submitters

    def submit(self, name: str, counted: bool = False, **options: Any) -> None:
        began = self.scheduler.now
        given = {"task_id": f"{name}!", "chord": {"c": 1}} if counted else {}
        self.scheduler.log("%s submits", name)
        try:
            result = self.task.apply_async(**given, **options)
        except (LockBackendError, OperationalError, EncodeError) as failure:
            self.scheduler.log("%s gets %r", name, failure)
            return
        self.scheduler.log("%s gets %s%s", name, result.id, " (duplicate)" if result.deduplicated else "")
        self.rules.submitted.append(Submitted(began, result.id, result.deduplicated, counted, "expires" in options))

    def publish(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """In place of ``app.send_task``. The broker may fail before or after it takes the message."""
        current().sleep(self.random.choice([self.faults.trip(), self.faults.trip(), 0.05]))
        self.server.effects += 1
        if self.chances.get("encode") and current().process in self.web and self.random.random() < 0.4:
            self._spend("encode")
            current().sleep(self.random.choice([0.0, 0.1, 1.0]))
            raise EncodeError("no")
        fault = ""
        if self.chances.get("broker") and self.random.random() < 0.3:
            self._spend("broker")
            fault = self.random.choice(["before", "after"])
        if fault != "before":
            times, now = times_of(self.task, options), clock.wall()
            message = Message(
                options["task_id"],
                tuple(args or ()),
                dict(options.get("headers") or {}),
                options.get("retries") or 0,
                self.scheduler.now + max(0.0, times.due - now) + self.random.choice(QUEUE_DELAYS),
                counted=bool(options.get("chord")),
                expires=self.scheduler.now + times.until - now if times.until else None,
            )
            self.scheduler.log("the broker has %s, %s", message.id, message.headers.get("celery_locks"))
            self.broker.send(message)
        current().sleep(self.faults.trip())
        if fault:
            raise OperationalError("timeout")
        return self.task.AsyncResult(options["task_id"])

    def _spend(self, kind: str) -> None:
        self.chances[kind] -= 1
        self.faults.count(kind)
        self.scheduler.log("*** %s", kind)

    # Workers

    def _deliver(self, process: Process, message: Message) -> None:
        self.current[process] = message
        process.thread(f"run of {message.id}", partial(self._work, process, message))

    def _work(self, process: Process, message: Message) -> None:
        self.scheduler.log("takes %s", message.id)
        try:
            self._run(process, message)
        finally:
            if not process.dead:
                self.current.pop(process, None)
                self.scheduler.at(self.scheduler.now + 1e-3, self.broker.dispatch)

    def _run(self, process: Process, message: Message) -> None:
        if self._is_revoked(message):
            return
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
                self.broker.send_again(message)
            elif not reject.requeue:
                self.results.store(message.id, "FAILURE", reject)
        except (Ignore, Retry):
            pass
        except Exception as failure:  # noqa: BLE001 - Celery stores it
            self._store_result(message, "FAILURE", failure)
        else:
            self._store_result(message, "SUCCESS", result)
        finally:
            self.task.request_stack.pop()

    def _store_result(self, message: Message, status: str, result: Any) -> None:
        current().sleep(self.store_takes())
        self.results.store(message.id, status, result)
        confirm(self.task)

    def store_takes(self) -> float:
        return self.random.choice([self.faults.trip(), self.faults.trip(), 0.05, 1.0])

    def _is_revoked(self, message: Message) -> bool:
        """The check of the worker's main process, which remembers the ids of expired messages."""
        if message.expires is None or self.scheduler.now <= message.expires:
            return message.id in self.rules.revoked | self.expired
        fake = SimpleNamespace(
            task=self.task,
            id=message.id,
            args=message.args,
            kwargs={},
            _context=SimpleNamespace(headers=message.headers, retries=message.tries),
        )
        verdict = request.expire(fake)
        if verdict == "dropped":
            self.expired.add(message.id)
            self.results.store(message.id, "REVOKED", "expired")
            request._on_revoked(fake)
        return verdict != "begun"

    def body(self, task: Any) -> str:
        plan = self.plans.pop(0) if self.plans else "success"
        run = self.rules.begin_run(str(task.request.id), current(), task.request.get("lock_run"))
        self.scheduler.log("the body of %s begins: %s", run.id, plan)
        # if messages are redelivered at once, a long body would use up all redeliveries
        lengths = [1e-3, 1e-2] if task.lock_retry_delay == 0 or plan == "brief" else [1e-3, 1e-2, 1.0, 12.0]
        current().sleep(10.0 if plan == "long" else self.random.choice(lengths))
        try:
            return self._plan(task, run, plan)
        except Reject:
            plan = "fail" if plan == "retry" else plan  # the retry can't be sent, so Celery fails the task
            raise
        finally:
            if plan == "retry" and not current().process.dead:
                current().sleep(1e-3)
            self.rules.ends(run, plan if not current().process.dead else "died")

    def _plan(self, task: Any, run: Run, plan: str) -> str:
        if plan == "retry":
            task.retry(countdown=self.random.choice([0, 20]), max_retries=None)
        if plan == "again":
            task.delay()
            current().sleep(1e-3)
        if plan == "requeue":
            raise Reject("later", requeue=True)
        if plan == "fail":
            raise BodyFailed(run.id)
        return run.id

    # Faults

    def _disasters(self) -> None:
        random = self.random
        self.faults.slowness = random.choice([1e-4, 3e-4, 3e-3])
        for kind, count in self.chances.items():
            for _ in range(count):
                moment = random.choice([random.uniform(0.0, 0.03), random.uniform(0.0, 1.5), random.uniform(0.0, 30.0)])
                if kind in ("death", "copy", "stop", "store"):
                    self.scheduler.at(moment, partial(getattr(self, f"_{kind}"), random))
        if random.random() < 0.5 and self.task.lock_retry_delay != 0:  # see body
            self.faults.chances = {"request lost": 0.02, "reply lost": 0.02, "late": 0.01}
            self.faults.left = 2

    def _death(self, random: Any) -> None:
        busy = [worker for worker in self.broker.workers if worker in self.current and not worker.dead]
        victims = [*busy, *busy, *(process for process in self.web if process.busy and not process.dead)]
        if victims:
            self.faults.count("death")
            self.kill(random.choice(victims))

    def kill(self, process: Process) -> None:
        self.scheduler.log("*** %s dies", process.name)
        process.kill()
        self.rules.died(process)
        message = self.current.pop(process, None)
        if process in self.broker.workers:
            replacement = self._new_process(f"w{len(self.processes)}")
            self.broker.workers[self.broker.workers.index(process)] = replacement
            self.scheduler.at(self.scheduler.now + 0.01, self.broker.dispatch)
        if message is None:
            return
        self.rules.lossy |= not self.late
        if self.random.random() < 0.5:  # its parent process detects it
            parent = self._new_process(f"m{len(self.processes)}")
            parent.thread("main", partial(self._reap, process, message), 0.05)
        elif self.late:
            self.broker.send_again(message, self.random.choice([0.01, 1.0, 60.0]))

    def _reap(self, process: Process, message: Message) -> None:
        fake = SimpleNamespace(
            task=self.task,
            worker_pid=process.pid,
            id=message.id,
            args=message.args,
            kwargs={},
            _context=SimpleNamespace(headers=message.headers, retries=message.tries),
        )
        request.free_dead_run(fake, redelivered=self.late)
        if self.late:
            self.broker.send_again(message)

    def _copy(self, random: Any) -> None:
        if self.broker.past:
            copy = random.choice(self.broker.past)
            self.faults.count("copy")
            self.scheduler.log("*** a copy of %s arrives", copy.id)
            self.broker.send_again(copy)

    def _stop(self, random: Any) -> None:
        victim = random.choice([process for process in self.processes if not process.dead])
        seconds = random.choice([1.0, 12.0, 40.0])
        self.faults.count("stop")
        self.scheduler.log("*** %s is stopped for %s s", victim.name, seconds)
        self.faults.disturb(seconds, victim, "stop")
        victim.stop(seconds)

    def _store(self, random: Any) -> None:
        seconds = random.choice([0.1, 3.0, 15.0])
        self.faults.count("store")
        self.scheduler.log("*** the server is down for %s s", seconds)
        self.faults.disturb(seconds, None, "store")
        self.server.cut()
        self.server.down_until = self.scheduler.now + seconds

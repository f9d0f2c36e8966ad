"""The tasks of these tests. Each has `who`, the mark of its test, as first argument, and writes what it does."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore, Reject

ACKS: dict[str, dict[str, bool]] = {
    "early": {},
    "late": {"acks_late": True},
    "requeue": {"acks_late": True, "reject_on_worker_lost": True},
}


BRIEF = 5.0
"""A lease, in seconds, whose end a test can wait for; not shorter, because a machine may stand still for seconds."""

EXPIRES = 0.5
"""Seconds after which a message expires."""


def quick(self: Any, who: str, *rest: Any) -> str:
    with self.app.journal.body(self, who) as run:
        return run


def hold(self: Any, who: str, *rest: Any) -> str:
    """Inside until the test opens the gate."""
    with self.app.journal.body(self, who) as run:
        self.app.journal.pass_gate(who)
        return run


def failing(self: Any, who: str) -> None:
    """As `hold`, and then it fails."""
    with self.app.journal.body(self, who):
        self.app.journal.pass_gate(who)
        raise ValueError(who)


def flaky(self: Any, who: str, failures: int = 2) -> str:
    with self.app.journal.body(self, who) as run:
        if self.request.retries < failures:
            raise self.retry(countdown=0, max_retries=failures)
        return run


def patient(self: Any, who: str) -> str:
    """Retries once, later: between the two, or before the test opens the gate, it looks at what is there."""
    with self.app.journal.body(self, who) as run:
        if not self.request.retries:
            raise self.retry(countdown=1.5)
        self.app.journal.pass_gate(who)
        return run


def lingering(self: Any, who: str) -> str:
    """Its retry is published, and it stays inside until the test opens the gate."""
    with self.app.journal.body(self, who) as run:
        if self.request.retries:
            return run
        try:
            self.retry(countdown=0)
        finally:
            self.app.journal.pass_gate(who)
        raise AssertionError


def stubborn(self: Any, who: str) -> str:
    """Can't be asked to go: only a SIGKILL or the gate ends it. It writes as long as it lives."""
    with self.app.journal.body(self, who) as run:
        while True:
            try:
                while not self.app.journal.pass_gate(who, 0):
                    self.app.journal.write("alive", who, run=run)
                    time.sleep(0.005)
                return run
            except SystemExit:
                self.app.journal.write("swallowed", who, run=run)


def ending(self: Any, who: str, how: str) -> str:
    """Ends in each way that a body has."""
    with self.app.journal.body(self, who) as run:
        if how == "failure":
            raise ValueError(how)
        if how == "ignore":
            raise Ignore
        if how == "reject":
            raise Reject(how, requeue=False)
        if how == "exit":
            sys.exit(3)
        return run


def again(self: Any, who: str) -> str:
    """Submits itself at its end, until it has run three times."""
    with self.app.journal.body(self, who) as run:
        if self.app.journal.redis.incr(f"again:{who}") < 3:
            self.delay(who)
        return run


class Deadly:
    """A result that kills the first process that stores it: its run has ended, and it has no result."""

    def __init__(self, task: Any, who: str, run: str) -> None:
        self.journal, self.who, self.run = task.app.journal, who, run

    def __json__(self) -> str:
        if self.journal.redis.incr(f"deadly:{self.who}") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.run


def deadly(self: Any, who: str) -> Deadly:
    with self.app.journal.body(self, who) as run:
        return Deadly(self, who, run)


def collect(self: Any, results: Any, who: str) -> Any:
    """The last task of a chord, a chain or a link. It takes no lock: each call runs."""
    self.app.journal.write("collected", who, results=results)
    return results


BODIES = [quick, hold, failing, flaky, patient, lingering, stubborn, ending, again]


def dying(base: type[Task]) -> type[Task]:
    """A class whose process dies at its first success, after the result was stored."""

    class Dying(base):  # type: ignore[misc, valid-type]
        abstract = True

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            if self.app.journal.redis.incr(f"dying:{args[0]}") == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            super().on_success(retval, task_id, args, kwargs)

    return Dying


def declare(app: Celery, bases: dict[str, type[Task]]) -> None:
    """`single.early.hold`: the kind of its class, how it acknowledges, what it does. `brief` is `hold` with a brief lease."""
    for kind, base in bases.items():
        for ack, options in ACKS.items():
            for body in BODIES:
                app.task(body, name=f"{kind}.{ack}.{body.__name__}", base=base, bind=True, **options)
            app.task(hold, name=f"{kind}.{ack}.brief", base=base, bind=True, lock_expire=BRIEF, **options)
            app.task(
                deadly, name=f"{kind}.{ack}.deadly", base=base, bind=True, shared=False, idempotency_ttl=60, **options
            )
            app.task(quick, name=f"{kind}.{ack}.dying", base=dying(base), bind=True, **options)
    app.task(collect, name="collect", base=Task, bind=True)

"""The tasks of these tests. The first argument of each is `tag`; each writes what it does to the journal."""

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


SHORT_LEASE = 5.0
"""Seconds of a lease that a test can wait for; not shorter, because a busy machine may stall for seconds."""

MESSAGE_EXPIRES = 0.5
"""Seconds after which a message expires."""


def quick(self: Any, tag: str, *rest: Any) -> str:
    with self.app.journal.body(self, tag) as run:
        return run


def wait_for_gate(self: Any, tag: str, *rest: Any) -> str:
    """Runs until the test opens the gate."""
    with self.app.journal.body(self, tag) as run:
        self.app.journal.pass_gate(tag)
        return run


def failing(self: Any, tag: str) -> None:
    """Runs until the test opens the gate, then fails."""
    with self.app.journal.body(self, tag):
        self.app.journal.pass_gate(tag)
        raise ValueError(tag)


def flaky(self: Any, tag: str, failures: int = 2) -> str:
    with self.app.journal.body(self, tag) as run:
        if self.request.retries < failures:
            raise self.retry(countdown=0, max_retries=failures)
        return run


def retry_later(self: Any, tag: str) -> str:
    """Retries once after 1.5 seconds; the second try runs until the test opens the gate."""
    with self.app.journal.body(self, tag) as run:
        if not self.request.retries:
            raise self.retry(countdown=1.5)
        self.app.journal.pass_gate(tag)
        return run


def retry_and_stay(self: Any, tag: str) -> str:
    """Publishes its retry, then keeps running until the test opens the gate."""
    with self.app.journal.body(self, tag) as run:
        if self.request.retries:
            return run
        try:
            self.retry(countdown=0)
        finally:
            self.app.journal.pass_gate(tag)
        raise AssertionError


def ignore_exit(self: Any, tag: str) -> str:
    """Ignores SystemExit: only SIGKILL or the gate ends it. Writes `alive` entries as long as it runs."""
    with self.app.journal.body(self, tag) as run:
        while True:
            try:
                while not self.app.journal.pass_gate(tag, 0):
                    self.app.journal.write("alive", tag, run=run)
                    time.sleep(0.005)
                return run
            except SystemExit:
                self.app.journal.write("swallowed", tag, run=run)


def end_by(self: Any, tag: str, how: str) -> str:
    """Ends by an exception of this kind, or else returns."""
    with self.app.journal.body(self, tag) as run:
        if how == "failure":
            raise ValueError(how)
        if how == "ignore":
            raise Ignore
        if how == "reject":
            raise Reject(how, requeue=False)
        if how == "exit":
            sys.exit(3)
        return run


def resubmit(self: Any, tag: str) -> str:
    """Submits itself at its end, until it has run three times."""
    with self.app.journal.body(self, tag) as run:
        if self.app.journal.redis.incr(f"resubmit:{tag}") < 3:
            self.delay(tag)
        return run


class KillsOnStore:
    """A result that kills the first process that stores it, when the body has already ended."""

    def __init__(self, task: Any, tag: str, run: str) -> None:
        self.journal, self.tag, self.run = task.app.journal, tag, run

    def __json__(self) -> str:
        if self.journal.redis.incr(f"killed_before_result:{self.tag}") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.run


def killed_before_result(self: Any, tag: str) -> KillsOnStore:
    with self.app.journal.body(self, tag) as run:
        return KillsOnStore(self, tag, run)


def collect(self: Any, results: Any, tag: str) -> Any:
    """The last task of a chord, a chain or a link. A plain task: each call runs."""
    self.app.journal.write("collected", tag, results=results)
    return results


BODIES = [quick, wait_for_gate, failing, flaky, retry_later, retry_and_stay, ignore_exit, end_by, resubmit]


def killed_after_result(base: type[Task]) -> type[Task]:
    """A task class that kills its process at the first success, after the result was stored."""

    class KilledAfterResult(base):  # type: ignore[misc, valid-type]
        abstract = True

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            if self.app.journal.redis.incr(f"killed_after_result:{args[0]}") == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            super().on_success(retval, task_id, args, kwargs)

    return KilledAfterResult


def declare(app: Celery, bases: dict[str, type[Task]]) -> None:
    """Declare tasks by class, acknowledgement and body, such as `singleton.early.wait_for_gate`. `short_lease` is
    `wait_for_gate` with a short lease."""
    for kind, base in bases.items():
        for ack, options in ACKS.items():
            for body in BODIES:
                app.task(body, name=f"{kind}.{ack}.{body.__name__}", base=base, bind=True, **options)
            app.task(
                wait_for_gate,
                name=f"{kind}.{ack}.short_lease",
                base=base,
                bind=True,
                lock_expire=SHORT_LEASE,
                **options,
            )
            app.task(
                killed_before_result,
                name=f"{kind}.{ack}.killed_before_result",
                base=base,
                bind=True,
                shared=False,
                idempotency_ttl=60,
                **options,
            )
            app.task(
                quick, name=f"{kind}.{ack}.killed_after_result", base=killed_after_result(base), bind=True, **options
            )
    # not shared: an app with idempotency_ttl as a default refuses them
    limit = {"lock_limit": 2, "lock_key": "{tag}", "base": bases["singleton"], "bind": True, "shared": False}
    for ack, options in ACKS.items():
        for body in (wait_for_gate, ignore_exit, flaky):
            each = {"lock_on_duplicate": "queue", "lock_wait": 60, **options}
            app.task(body, name=f"limited.{ack}.{body.__name__}", **limit, **each)
    app.task(wait_for_gate, name="limited.skip", lock_on_conflict="skip", **limit)
    app.task(collect, name="collect", base=Task, bind=True)

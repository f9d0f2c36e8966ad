"""The Celery app of these tests: one in the test's process, which submits, and the same one in each worker."""

from __future__ import annotations

from typing import Any

from celery import Celery, Task

from celery_locks import IdempotentTask, SingletonTask
from tests.celery import declarations, tasks
from tests.celery.journal import Journal

MODULE = "tests.celery.worker_app"

Config = dict[str, Any]
"""Passed to workers as JSON. Keys: broker, results, journal, locks (an entry of REDIS_LOCKS), transport, conf and
more."""


KINDS: dict[str, type[Task]] = {"singleton": SingletonTask, "idempotent": IdempotentTask, "plain": Task}


def make_app(config: Config, *, redis_locks: bool = True) -> Celery:
    """``redis_locks``: configure the locks in the app, as a program without Django's settings does."""
    app = Celery("tests", set_as_current=False, task_cls=SingletonTask)  # also the class of Celery's built-in tasks
    app.conf.update(
        broker_url=config["broker"],
        result_backend=config.get("results"),
        redis_locks={"default": config["locks"]} if redis_locks else None,
        broker_transport_options=config.get("transport", {}),
        broker_connection_retry_on_startup=True,
        **{"worker_prefetch_multiplier": 1, **config.get("conf", {})},
    )
    app.journal = Journal(config["journal"])
    tasks.declare(app, KINDS)
    declarations.declare(app)
    return app

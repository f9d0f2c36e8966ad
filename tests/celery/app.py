"""The Celery app of these tests: one in the test's process, which submits, and the same one in each worker."""

from __future__ import annotations

from typing import Any

from celery import Celery, Task

from celery_locks import IdempotentTask, SingletonTask
from tests.celery import declarations, tasks
from tests.celery.journal import Journal

MODULE = "tests.celery.worker"

Config = dict[str, Any]
"""What a worker must know, as JSON: broker, results, journal, locks (an entry of REDIS_LOCKS), transport, more."""


KINDS: dict[str, type[Task]] = {"single": SingletonTask, "once": IdempotentTask, "plain": Task}


def make_app(config: Config, *, redis_locks: bool = True) -> Celery:
    """``redis_locks``: the app says where the locks are, as in a program without Django's settings."""
    app = Celery("tests", set_as_current=False, task_cls=SingletonTask)  # Celery's own tasks have it then, too
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

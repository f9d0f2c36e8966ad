"""The app that `celery -A` loads. Configured by the environment, it records worker starts and task runs in the
journal."""

from __future__ import annotations

import json
import os
from typing import Any

from celery.signals import task_postrun, task_prerun, worker_ready

from tests.celery.app import make_app

config = json.loads(os.environ["CELERY_TESTS"])
app = make_app({**config, "results": config.get("worker_results") or config["results"]})
app.set_current()
app.set_default()


@worker_ready.connect
def ready(sender: Any, **_: Any) -> None:
    app.journal.write("ready", config["name"])


@task_prerun.connect
def prerun(task_id: str, task: Any, args: Any, **_: Any) -> None:
    if args:
        app.journal.write("prerun", str(args[0]), id=task_id)


@task_postrun.connect
def postrun(task_id: str, task: Any, args: Any, state: Any, **_: Any) -> None:
    """Delivered tasks that were not run have a `postrun` entry without a `begin`."""
    if args:
        app.journal.write("postrun", str(args[0]), id=task_id, state=state)

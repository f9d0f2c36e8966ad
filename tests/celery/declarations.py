"""Every way to give a task its class. They are all the same task: a body that is inside until the gate opens."""

from __future__ import annotations

from typing import Any

from celery import Celery, shared_task

from celery_locks import SingletonTask
from tests.celery.tasks import hold

FORMS = ["class", "app.task", "shared_task", "task_cls"]


def declare(app: Celery) -> None:
    class Held(SingletonTask):
        name = "form.class"

        def run(self, who: str, *rest: Any) -> str:
            return hold(self, who, *rest)

    app.register_task(Held())
    app.task(hold, name="form.app.task", base=SingletonTask, bind=True)
    shared_task(hold, name="form.shared_task", base=SingletonTask, bind=True)
    app.task(hold, name="form.task_cls", bind=True)  # it is the default class of this app

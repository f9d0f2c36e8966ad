"""Tasks with the same body, declared in each way that gives a task its class."""

from __future__ import annotations

from typing import Any

from celery import Celery, shared_task

from celery_locks import SingletonTask
from tests.celery.tasks import wait_for_gate

FORMS = ["class", "app.task", "shared_task", "task_cls"]


def declare(app: Celery) -> None:
    class Held(SingletonTask):
        name = "form.class"

        def run(self, tag: str, *rest: Any) -> str:
            return wait_for_gate(self, tag, *rest)

    app.register_task(Held())
    app.task(wait_for_gate, name="form.app.task", base=SingletonTask, bind=True)
    shared_task(wait_for_gate, name="form.shared_task", base=SingletonTask, bind=True)
    app.task(wait_for_gate, name="form.task_cls", bind=True)  # the app's default class

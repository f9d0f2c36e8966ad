"""Writes events of jobs, one per line, to the file in the environment variable JOURNAL, if it is set.

`make demo-celery` evaluates it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.signals import after_task_publish

from celery_locks import signals

FILE = os.environ.get("JOURNAL")


def note(what: str, task: str, id: str, key: object = None) -> None:
    if FILE:
        line = {"what": what, "task": task, "id": id, "key": key, "pid": os.getpid(), "at": time.time()}
        file = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(
                file, json.dumps(line).encode() + b"\n"
            )  # in one write, so that lines of several processes don't mix
        finally:
            os.close(file)


@contextmanager
def run(task: str, id: str, key: object = None) -> Iterator[None]:
    note("began", task, id, key)
    yield
    note("ended", task, id, key)


def _sent(sender: str, headers: dict[str, Any], **_: object) -> None:
    note("sent", sender, headers["id"])


def _kept(sender: Any, task_id: str, **_: object) -> None:
    note("kept", sender.name, task_id)


def _freed(sender: Any, task_id: str, **_: object) -> None:
    note("freed", sender.name, task_id)


if FILE:
    signals.dead_run_freed.connect(_freed, weak=False)
    after_task_publish.connect(_sent, weak=False)
    signals.tick_suppressed.connect(_kept, weak=False)
    signals.duplicate_suppressed.connect(_kept, weak=False)

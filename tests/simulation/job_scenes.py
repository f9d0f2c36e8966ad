"""The scenes of the job world: submissions, task options and faults. A seed chooses one."""

from __future__ import annotations

from typing import Any

from celery_locks import IdempotentTask, SingletonTask


class OwnCall(IdempotentTask):
    """As in Flask's documentation."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


TROUBLE = {"death": 1, "copy": 1, "stop": 1}

TIMES: list[dict[str, Any]] = [{}, {"expires": 0.5}, {"expires": 4}, {"countdown": 20}, {"countdown": 3, "expires": 30}]

SCENES: dict[str, dict[str, Any]] = {
    "three at once": {"chances": {"stop": 1}},
    "deaths and copies": {"chances": {"death": 2, "copy": 2, "stop": 1}},
    "a singleton, deaths and copies": {"base": SingletonTask, "chances": {"death": 2, "copy": 2, "stop": 1}},
    "the store fails": {"base": SingletonTask, "chances": {"store": 2}},
    "the store and a process fail": {"base": SingletonTask, "chances": {"store": 1, "death": 1}},
    "the broker fails": {"chances": {"broker": 2}},
    "retries": {"plans": ["retry", "retry"], "chances": TROUBLE},
    "retries at once": {"plans": ["retry", "retry"]},
    "retries, and the broker fails": {"plans": ["retry"], "chances": {"broker": 1}},
    "failures": {"plans": ["fail"], "chances": TROUBLE},
    "bodies that submit themselves": {"plans": ["again", "again"], "chances": TROUBLE},
    "requeued messages": {"plans": ["requeue"], "chances": TROUBLE},
    "replaced": {"lock_on_duplicate": "replace", "chances": {"stop": 1}},
    "replaced, and the broker fails": {"lock_on_duplicate": "replace", "chances": {"broker": 1, "encode": 1}},
    "replaced, and processes die": {"lock_on_duplicate": "replace", "chances": TROUBLE},
    "until the start": {"unique_until": "start", "chances": TROUBLE},
    "until the start, in the worker": {"unique_until": "start", "lock_wait": 5, "chances": TROUBLE},
    "until the start, replaced": {"unique_until": "start", "lock_on_duplicate": "replace", "chances": {"encode": 1}},
    "until the start, the store fails": {"unique_until": "start", "base": SingletonTask, "chances": {"store": 1}},
    "two at a time": {"base": SingletonTask, "lock_limit": 2, "chances": {"death": 2, "copy": 1, "stop": 1}},
    "two at a time, in the worker": {
        "base": SingletonTask,
        "lock_limit": 2,
        "lock_on_conflict": "wait",
        "lock_wait": -1,
        "chances": TROUBLE,
    },
    "two at a time, the store fails": {"base": SingletonTask, "lock_limit": 2, "chances": {"store": 1}},
    "two at a time, retries": {"base": SingletonTask, "lock_limit": 2, "plans": ["retry", "fail"], "chances": TROUBLE},
    "two at a time, each submission runs": {
        "base": SingletonTask,
        "lock_limit": 2,
        "lock_on_duplicate": "queue",
        "chances": TROUBLE,
        "each": True,
    },
    "minimum hold": {"lock_min_hold": 30, "chances": TROUBLE},
    "results are kept": {"idempotency_ttl": 50, "chances": TROUBLE},
    "until it is expired": {"unique_until": "expired", "idempotency_ttl": 50, "chances": TROUBLE},
    "in canvas": {"counted": (1, 2), "chances": {"copy": 1, "stop": 1}},
    "in canvas, and the broker fails": {"counted": (1, 2), "chances": {"broker": 1}},
    "in canvas, replaced": {"counted": (0,), "lock_on_duplicate": "replace", "chances": {"stop": 1}},
    "times that differ": {"options": TIMES, "chances": TROUBLE},
    "times that differ, and the broker fails": {"options": TIMES, "chances": {"broker": 1, "encode": 1}},
    "times that differ, in canvas": {"options": TIMES, "counted": (0,), "chances": {"stop": 1}},
    "times that differ, until the start": {"options": TIMES, "unique_until": "start", "chances": {"stop": 1}},
    "times that differ, and retries": {"options": TIMES, "plans": ["retry"], "chances": TROUBLE},
    "each submission runs": {
        "lock_on_duplicate": "queue",
        "lock_on_conflict": "retry",
        "chances": TROUBLE,
        "each": True,
    },
    "each submission runs, requeued": {
        "lock_on_duplicate": "queue",
        "lock_on_conflict": "retry",
        "lock_retry_delay": 0,
        "plans": ["requeue"],
        "each": True,
    },
    "with a call of its own": {"base": OwnCall, "known": "K1"},
}

OWN_ARGUMENTS = ("plans", "options", "counted", "each", "chances", "known")
"""Entries that aren't task options: the actions of the bodies in order; the options of submissions, one of which is
drawn; the submissions that a chord needs; whether each submission must run; the known defect that the scene is for."""


def options_of(scene: dict[str, Any]) -> dict[str, Any]:
    """The task options of a scene."""
    options = {name: value for name, value in scene.items() if name not in OWN_ARGUMENTS}
    return {"base": IdempotentTask, **options}

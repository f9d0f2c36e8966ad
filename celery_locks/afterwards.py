"""A task is over: what a ``@redis_lock`` in it left to the end of its transaction, and couldn't give back, is given back."""

from __future__ import annotations

from typing import Any

from celery.signals import task_postrun

from django_redis_locks import release_leftovers


def _over(**_: Any) -> None:
    release_leftovers()


task_postrun.connect(_over, weak=False, dispatch_uid="celery_locks")

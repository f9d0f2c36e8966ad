"""The shop's background tasks: how often jobs run. What they do is in `jobs`."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from celery_locks import IdempotentTask, SingletonTask

from . import jobs


@shared_task(base=SingletonTask, bind=True, name="shop.take_stock")
def take_stock(self: Any) -> int:
    """Beat's job: one run per tick and at a time, with any number of beats and workers."""
    return jobs.take_stock(self)


@shared_task(
    base=IdempotentTask,
    bind=True,
    name="shop.confirm_order",
    lock_key="{order_id}",
    idempotency_ttl=3600,  # no second confirmation for an hour after the first
    acks_late=True,  # with both, a confirmation of a worker that dies
    reject_on_worker_lost=True,  # is sent by another worker
)
def confirm_order(self: Any, order_id: int) -> str:
    """One confirmation per order, however often it is submitted."""
    return jobs.confirm_order(self, order_id)

"""The same jobs as plain Celery tasks, for comparison. Only the demo loads them."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from . import jobs


@shared_task(bind=True, name="plain.take_stock")
def take_stock(self: Any) -> int:
    return jobs.take_stock(self)


@shared_task(bind=True, name="plain.confirm_order", acks_late=True, reject_on_worker_lost=True)
def confirm_order(self: Any, order_id: int) -> str:
    return jobs.confirm_order(self, order_id)

"""The bodies of background jobs."""

from __future__ import annotations

import time
from typing import Any

from django.core.mail import send_mail
from django.db.models import Sum

from . import journal
from .models import Order, Product

COUNTING = 1.2
PRINTING = 0.25
"""Seconds that the jobs take."""


def take_stock(task: Any) -> int:
    with journal.run(task.name, task.request.id):
        time.sleep(COUNTING)
        return Product.objects.aggregate(all=Sum("stock"))["all"] or 0


def confirm_order(task: Any, order_id: int) -> str:
    """Sending the mail is the last step: a run that is killed before it has no effect, and can be repeated."""
    with journal.run(task.name, task.request.id, order_id):
        order = Order.objects.select_related("product").get(pk=order_id)
        time.sleep(PRINTING)
        send_mail(f"{order}: {order.product}", order.receipt, None, ["buyer@example.com"])
    return str(order)

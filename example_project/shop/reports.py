"""The sales report: slow to make, with many concurrent readers."""

from __future__ import annotations

import time
from typing import Any

from django.core.cache import cache
from django.db.models import Count, Sum
from django.utils import timezone

from django_redis_locks.cache import get_or_load

from .models import Product

SALES = "shop:sales"
UNGUARDED = "shop:sales:unguarded"

TTL = 60
STALE = 300
COUNTING = 0.6
"""Seconds: how long a report is fresh, how long it is then served while a new one is made, and how long that takes."""


def make_sales() -> dict[str, Any]:
    """Everything that was sold, by product."""
    time.sleep(COUNTING)  # simulates many orders
    products = Product.objects.annotate(sold=Count("orders"), revenue=Sum("orders__price", default=0)).order_by("pk")
    return {"made": timezone.now(), "products": list(products.values("name", "sold", "revenue"))}


def is_worth_keeping(report: dict[str, Any]) -> bool:
    """Whether a report is stored: not while the shop has no products."""
    return bool(report["products"])


def sales() -> dict[str, Any]:
    """The report, made by one caller at a time in all processes. The other callers get the old report, and wait only if
    there is none."""
    return get_or_load(SALES, make_sales, ttl=TTL, stale=STALE, refresh="thread", store_if=is_worth_keeping)


def sales_unguarded() -> dict[str, Any]:
    """The report, made by every caller while there is none."""
    return cache.get_or_set(UNGUARDED, make_sales, TTL)

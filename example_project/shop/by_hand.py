"""A decorator with redis-py's Lock, as many projects write it, for comparison.

Lock and decorator are correct by themselves. But with ATOMIC_REQUESTS Django opens the transaction around the view *with*
its decorators, so that the lock is free before COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from redis import Redis

client = Redis.from_url(settings.REDIS_LOCKS["default"]["LOCATION"])


def locked_by_hand(view: Callable[[HttpRequest, int], HttpResponse]) -> Callable[[HttpRequest, int], HttpResponse]:
    @wraps(view)
    def wrapper(request: HttpRequest, product_id: int) -> HttpResponse:
        with client.lock(f"by-hand:{product_id}", timeout=5, blocking_timeout=10, sleep=0.01):
            return view(request, product_id)

    return wrapper

"""The Celery companion of `django_redis_locks`.

This version only reserves the name: the task base classes come in a later one.
"""

from __future__ import annotations

__all__: list[str] = []

"""``app.conf.redis_locks``: the settings of the locks, for programs without Django settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_redis_locks import locks

if TYPE_CHECKING:
    from celery import Celery

_applied: Any = None


def apply_settings(app: Celery) -> None:
    """Configure ``locks`` from the app's configuration. ``REDIS_LOCKS`` in Django's settings takes precedence."""
    global _applied  # noqa: PLW0603 - one configuration per process
    table = app.conf.get("redis_locks")
    if table is not None and table != _applied:
        locks.configure(table)
        _applied = table

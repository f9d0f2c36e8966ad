"""``app.conf.redis_locks``: the settings of the locks for a program without Django's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_redis_locks import locks

if TYPE_CHECKING:
    from celery import Celery

_adopted: Any = None


def apply_settings(app: Celery) -> None:
    """Tell ``locks`` what the app's configuration says; where Django has ``REDIS_LOCKS``, that wins."""
    global _adopted  # noqa: PLW0603 - the locks are the process's
    table = app.conf.get("redis_locks")
    if table is not None and table != _adopted:
        locks.configure(table)
        _adopted = table

"""Celery tasks that never overlap, and submissions that run once.

``SingletonTask`` and ``IdempotentTask`` are base classes of tasks; the rest are values, errors and counters.
"""

from __future__ import annotations

from . import beat as _beat  # noqa: F401 - connects signal handlers, as does checks
from . import cache_refresh as _cache_refresh  # noqa: F401 - registers a task
from . import checks as _checks  # noqa: F401
from .errors import DuplicateTask, IdempotencyKeyReused
from .run_lock import RunLock
from .signals import counters
from .task import IdempotentTask, SingletonTask

__all__ = ["DuplicateTask", "IdempotencyKeyReused", "IdempotentTask", "RunLock", "SingletonTask", "counters"]

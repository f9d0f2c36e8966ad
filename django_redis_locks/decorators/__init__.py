"""``@redis_lock``: runs each call of a view, method or function under a lock."""

from __future__ import annotations

from .redis_lock import redis_lock

__all__ = ["redis_lock"]

"""``@redis_lock``: a call that runs under a lock."""

from __future__ import annotations

from .redis_lock import redis_lock

__all__ = ["redis_lock"]

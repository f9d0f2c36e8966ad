"""Redis and Valkey: one server."""

from __future__ import annotations

from .backend import RedisBackend

__all__ = ["RedisBackend"]

"""The memory backend: a store in this process."""

from __future__ import annotations

from .backend import MemoryBackend

__all__ = ["MemoryBackend"]

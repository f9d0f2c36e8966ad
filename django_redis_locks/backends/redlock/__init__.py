"""The backend for Redlock: locks on a majority of independent Redis servers."""

from __future__ import annotations

from .backend import RedlockBackend

__all__ = ["RedlockBackend"]

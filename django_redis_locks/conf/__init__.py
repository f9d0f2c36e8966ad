"""The setting ``REDIS_LOCKS``: its keys, validation and values.

Each fault is a ``Problem`` with an id. The system checks report all of them; the first use of an alias raises its first
error.
"""

from __future__ import annotations

from .schema import DEFAULTS, ON_BACKEND_ERROR, SETTING, VERSION_WARNING, InvalidLockBackend, Problem
from .settings import AliasSettings, read
from .validation import handler_problems, problems

__all__ = [
    "DEFAULTS",
    "ON_BACKEND_ERROR",
    "SETTING",
    "VERSION_WARNING",
    "AliasSettings",
    "InvalidLockBackend",
    "Problem",
    "handler_problems",
    "problems",
    "read",
]

"""``REDIS_LOCKS``: read, checked, and made into values.

Whatever is wrong is a ``Problem`` with an id; the system checks report them all, and using an alias raises the first
error of it.
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

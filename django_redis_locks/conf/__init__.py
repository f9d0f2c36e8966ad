"""``REDIS_LOCKS``: read, checked, and made into values.

Whatever is wrong is a ``Problem`` with an id; the system checks report them all, and using an alias raises the first
error of it.
"""

from __future__ import annotations

from .schema import DEFAULTS, DOUBT, ON_BACKEND_ERROR, SETTING, InvalidLockBackend, Problem
from .settings import AliasSettings, read
from .validation import problems, unreachable

__all__ = [
    "DEFAULTS",
    "DOUBT",
    "ON_BACKEND_ERROR",
    "SETTING",
    "AliasSettings",
    "InvalidLockBackend",
    "Problem",
    "problems",
    "read",
    "unreachable",
]

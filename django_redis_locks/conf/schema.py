"""The keys of ``REDIS_LOCKS`` with their defaults, and the classes that report faults in it."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from ..core.holder import FIELDS
from ..core.tuning import BACKEND_WAIT

SETTING = "REDIS_LOCKS"

VERSION_WARNING = "W036"
"""The id of the check for installed versions that this package wasn't tested with."""

DEFAULTS: dict[str, Any] = {
    "BACKEND": "django_redis_locks.backends.redis.RedisBackend",
    "LOCATION": None,
    "CACHE": None,
    "KEY_PREFIX": "lock",
    "EXPIRE": 30,
    "WAIT": 10,
    "BACKEND_WAIT": BACKEND_WAIT,
    "MAX_HOLD": 3600,
    "ON_BACKEND_ERROR": "closed",
    "ON_CONFLICT": "answer",
    "INDEX": True,
    "HISTORY": 0,
    "LOG_KEYS": False,
    "METADATA": FIELDS,
    "LOCKS": {},
    "OPTIONS": {},
}

PLANNED = {
    "METADATA": ("path", "user", "task_id"),
}
"""Values that later versions will support. They have their own message."""

ON_BACKEND_ERROR = ("closed", "open")


class InvalidLockBackend(ImproperlyConfigured):
    """``REDIS_LOCKS`` lacks the alias, the entry of the alias has an error, or its store lacks what an object needs."""


class Problem(NamedTuple):
    """An error (``E…``) or a warning (``W…``) about the settings."""

    id: str
    message: str
    hint: str = ""

    @property
    def serious(self) -> bool:
        """Whether it is an error, and no warning or information."""
        return self.id.startswith("E")

"""The keys of ``REDIS_LOCKS``, their defaults, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from ..core.holder import FIELDS
from ..core.tuning import BACKEND_WAIT

SETTING = "REDIS_LOCKS"

VERSION_WARNING = "W036"
"""The check that what is installed may not work."""

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
"""What is designed and not built yet, so that it is answered as such and not as a typing error."""

OTHER_NAMES = {
    "TIMEOUT": "EXPIRE",
    "TTL": "EXPIRE",
    "LEASE": "EXPIRE",
    "BLOCKING_TIMEOUT": "WAIT",
    "ON_FAILURE": "ON_CONFLICT",
    "FAILURE_HANDLER": "ON_CONFLICT",
    "FAILURE_STATUS": "STATUS",
}
"""What other libraries call our settings."""

ON_BACKEND_ERROR = ("closed", "open")


class InvalidLockBackend(ImproperlyConfigured):
    """``REDIS_LOCKS`` has no such alias, or its entry is wrong."""


class Problem(NamedTuple):
    """Something wrong (``E…``) or doubtful (``W…``) in the settings."""

    id: str
    message: str
    hint: str = ""

    @property
    def serious(self) -> bool:
        return self.id.startswith("E")

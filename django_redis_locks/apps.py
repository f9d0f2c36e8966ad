"""The configuration of the Django app ``django_redis_locks``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from .core.digests import use_secret


def _check_caches(**options: Any) -> Sequence[checks.CheckMessage]:
    """Run the checks of the cache. It is imported here, so that projects that don't use it import it for checks
    only."""
    from .cache.checks import check_caches  # noqa: PLC0415

    return check_caches(**options)


class RedisLocksConfig(AppConfig):
    """Registers the system checks and the signals. Does no I/O."""

    name = "django_redis_locks"
    label = "django_redis_locks"
    verbose_name = _("Redis locks")

    def ready(self) -> None:
        """Connect the signals to the engine's events, and register the checks."""
        with suppress(ImproperlyConfigured):  # SECRET_KEY isn't set
            use_secret(settings.SECRET_KEY)
        from . import signals  # noqa: F401, PLC0415 - the import registers them as listeners of events
        from .checks import TAG, check_deployment, check_settings  # noqa: PLC0415 - settings are ready only now
        from .server_checks import check_servers  # noqa: PLC0415

        checks.register(check_settings, TAG)
        checks.register(_check_caches, TAG)
        checks.register(check_deployment, TAG, deploy=True)
        checks.register(check_servers, TAG, deploy=True)

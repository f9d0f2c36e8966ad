"""The smallest Django project in which the tests run."""

from __future__ import annotations

SECRET_KEY = "not a secret"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_redis_locks",
]

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}

# Tests that are about Redis say so with `override_settings` and the fixture `redis_url`.
REDIS_LOCKS = {
    "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"},
}

"""Django settings of beats with a schedule in the database: a SQLite file that all beats share."""

from __future__ import annotations

import os

SECRET_KEY = "not a secret"
USE_TZ = True
INSTALLED_APPS = ["django_celery_beat"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("BEAT_DATABASE", ":memory:"),
        "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
    }
}

"""A shop with its locks on Redis, and its cache in another database of that server.

`REDIS_URL` names the server, `DATABASE` an SQLite file or the folder of a PostgreSQL socket.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "the example has no secrets"
DEBUG = False  # as it runs in production: no log of queries that slows down, no pages for developers
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]

INSTALLED_APPS = ["django_redis_locks", "shop"]

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
REDIS_LOCKS = {"default": {"LOCATION": REDIS_URL, "ON_CONFLICT": "shop.conflicts.answer"}}
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": urlsplit(REDIS_URL)._replace(path="/2").geturl(),  # cache.clear() must not clear the locks
    },
}

DATABASE = Path(os.environ.get("DATABASE", BASE_DIR / "db.sqlite3"))
SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": DATABASE,
    "OPTIONS": {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",  # a transaction that reads before it writes must not fail halfway
        "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
    },
}
POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "HOST": str(DATABASE), "NAME": "postgres", "USER": "postgres"}
DATABASES = {
    # Each view is a transaction. Its lock is acquired before BEGIN and free after COMMIT all the same
    "default": {**(POSTGRESQL if DATABASE.is_dir() else SQLITE), "ATOMIC_REQUESTS": True},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", urlsplit(REDIS_URL)._replace(path="/1").geturl())
CELERY_RESULT_BACKEND = CELERY_BROKER_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_REDIS_LOCKS_DEFAULTS = {"lock_expire": 20}  # an option of all tasks, unless a task or a call has its own
CELERY_BEAT_SCHEDULE = {"take-stock": {"task": "shop.take_stock", "schedule": 60.0}}
if "JOURNAL" in os.environ:  # make demo-celery counts what happens, and compares
    CELERY_IMPORTS = ["shop.plain"]
    CELERY_TASK_ROUTES = {"plain.*": {"queue": "plain"}}
    CELERY_BEAT_SCHEDULE = {name: {"task": name, "schedule": 2.0} for name in ("shop.take_stock", "plain.take_stock")}
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = os.environ.get("MAILS", BASE_DIR / "mails")

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"django.request": {"level": "ERROR"}},  # 410 is an answer here, no trouble; 409 isn't logged there
}

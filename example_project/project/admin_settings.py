"""The shop's settings with Django's admin, for `admin_demo.py`: two aliases of locks, and languages."""

from __future__ import annotations

from .settings import *  # noqa: F403
from .settings import INSTALLED_APPS, REDIS_LOCKS

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    *INSTALLED_APPS,
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ROOT_URLCONF = "project.admin_urls"
STATIC_URL = "/static/"
USE_I18N = True

REDIS_LOCKS = {
    "default": {**REDIS_LOCKS["default"], "LOCKS": {"report": {"MAX_HOLD": 2}}},
    "payments": {**REDIS_LOCKS["default"], "KEY_PREFIX": "payments"},
}

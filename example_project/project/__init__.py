"""Imports the Celery app where Django starts, so that `shared_task` uses it in views too."""

from __future__ import annotations

from .celery import app as celery_app

__all__ = ["celery_app"]

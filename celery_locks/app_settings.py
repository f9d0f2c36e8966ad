"""The settings in Celery's configuration: ``app.conf.redis_locks``, the settings of the locks for programs without
Django settings, and ``app.conf.redis_locks_defaults``, the options of all tasks of the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from django_redis_locks import locks
from django_redis_locks.core.suggestions import closest, did_you_mean

from .options import OPTIONS, SET_BY_CLASS, contradictions, value_errors

if TYPE_CHECKING:
    from celery import Celery

    from .options import TaskOptions

_BASE_MODULES: Final = ("celery_locks.options", "celery_locks.task")
"""The modules of the base classes, whose options are only defaults."""

_applied: Any = None


def apply_settings(app: Celery) -> None:
    """Configure ``locks`` from the app's configuration. ``REDIS_LOCKS`` in Django's settings takes precedence."""
    global _applied  # noqa: PLW0603 - one configuration per process
    table = app.conf.get("redis_locks")
    if table is not None and table != _applied:
        locks.configure(table)
        _applied = table


def require_features(using: str, limit: int) -> None:
    """Check that the store of an alias has records, on which jobs are built, and for a ``lock_limit`` above 1 semaphores.
    Settings that can't be used are reported later, by the checks and by the first use.

    Raises:
        InvalidLockBackend: it hasn't.
    """
    try:
        client = locks[using]
    except ImproperlyConfigured:
        return
    client.record("job")
    if limit > 1:
        client.semaphore("job", limit)


def apply_defaults(task: type[TaskOptions], app: Celery) -> None:
    """Set the options of ``app.conf.redis_locks_defaults``, unless the task or a base class of the project sets them, or
    sets an option that can't be combined with them.

    Raises:
        ValueError: it isn't a dict, or names something else.
    """
    defaults = app.conf.get("redis_locks_defaults") or {}
    wrong = (
        [f"there is no option {name}{did_you_mean(closest(name, OPTIONS))}" for name in defaults if name not in OPTIONS]
        if isinstance(defaults, dict)
        else [f"it must be a dict of options, not {defaults!r}"]
    )
    if wrong:
        raise ValueError(f"app.conf.redis_locks_defaults: {'; '.join(wrong)}")
    own = {name for name in OPTIONS if _declaring_class(task, name).__module__ not in _BASE_MODULES}
    applied = defaults.keys() - own
    for name in applied:
        setattr(task, name, defaults[name])
    if applied and not value_errors(task):
        for contradiction in contradictions(task):
            if not own.union(SET_BY_CLASS).isdisjoint(contradiction.options):  # else the defaults contradict each other
                for name in applied.intersection(contradiction.options):
                    applied.discard(name)
                    delattr(task, name)


def _declaring_class(task: type[TaskOptions], name: str) -> type:
    return next(base for base in task.__mro__ if name in vars(base))

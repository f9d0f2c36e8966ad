"""A store that lacks a feature refuses the objects that need it when they are made, not at their first request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_locks import SingletonTask
from django_redis_locks import InvalidLockBackend, locks
from django_redis_locks.backends.base import FEATURES
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.cache import get_or_load


class LocksOnly(MemoryBackend):
    supports = frozenset()


class RecordsOnly(MemoryBackend):
    supports = frozenset({"records"})


def bind_task(name: str = "charge", **options: Any) -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)

    @app.task(name=name, base=SingletonTask, shared=False, lazy=False, **options)
    def charge() -> None: ...


MAKERS: list[tuple[str, Callable[[], Any]]] = [
    ("records need Redis", lambda: locks.record("a")),
    ("latches need Redis", lambda: locks.latch("a")),
    ("records need Redis", bind_task),
    ("fair locks need Redis", lambda: locks.fair_lock("a")),
    ("multi locks need Redis", lambda: locks.multi_lock("a", "b")),
    ("loads of a cache need Redis", lambda: get_or_load("a", int)),
]


@pytest.mark.parametrize(("needs", "make"), MAKERS, ids=["record", "latch", "task", "fair", "multi", "load"])
def test_object_is_refused_when_it_is_made(needs: str, make: Callable[[], Any], settings: Any, tmp_path: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"BACKEND": f"{__name__}.LocksOnly"}}
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": tmp_path}
    }
    locks.lock("a")
    bind_task("celery.accumulate")  # Celery's own tasks take no lock
    with pytest.raises(InvalidLockBackend) as refused:
        make()
    assert str(refused.value) == f"REDIS_LOCKS['default']: {needs}; LocksOnly can't have them."


def test_task_with_a_limit_needs_semaphores(settings: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"BACKEND": f"{__name__}.RecordsOnly"}}
    bind_task()
    with pytest.raises(InvalidLockBackend, match="semaphores need Redis"):
        bind_task(lock_limit=2)


def test_task_is_bound_without_usable_settings(settings: Any) -> None:
    """They may be set later; the checks report what is wrong."""
    for table in {}, {"default": {"LOCATION": 5}}:
        settings.REDIS_LOCKS = table
        bind_task()


def test_redis_and_memory_support_every_feature() -> None:
    assert MemoryBackend.supports == RedisBackend.supports == set(FEATURES)

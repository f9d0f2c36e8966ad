"""A store that lacks a feature refuses the objects that need it when they are made, not at their first request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from django.core.checks import run_checks

from celery_locks import SingletonTask
from django_redis_locks import InvalidLockBackend, locks, redis_lock
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
    ("fair locks need Redis or ZooKeeper", lambda: locks.fair_lock("a")),
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


def test_decorators_and_settings_with_an_unsupported_kind_are_E068(settings: Any) -> None:
    """[D5] Without the check the first request would be a 500."""
    kept = [
        redis_lock("slow:{x}", kind="semaphore", limit=2)(lambda x: x),
        redis_lock(key=["from:{x}", "to:{x}"])(lambda x: x),
        redis_lock("plain:{x}")(lambda x: x),
        redis_lock("fine:{x}", kind="fair", using="whole")(lambda x: x),
    ]
    names = {"plain:{x}": {"KIND": "read"}, "fine:{x}": {"WAIT": 1}}
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": f"{__name__}.LocksOnly", "LOCKS": names},
        "whole": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"},
    }
    found = [message.msg for message in run_checks(tags=["redis_locks"]) if message.id == "redis_locks.E068"]
    expected = [
        "@redis_lock of from:{x}, to:{x}, alias 'default': multi locks need Redis; LocksOnly can't have them.",
        "@redis_lock of slow:{x}, alias 'default': semaphores need Redis; LocksOnly can't have them.",
        "REDIS_LOCKS['default']['LOCKS']['plain:{x}'], alias 'default': read-write locks need Redis; LocksOnly can't have them.",
    ]
    assert [message for message in found if "{x}" in message] == expected
    del kept


def test_detached_holds_need_a_store_that_moves_them(settings: Any) -> None:
    """[L7] The lock stays held."""
    settings.REDIS_LOCKS = {"default": {"BACKEND": f"{__name__}.MemoryBackend"}}
    text = locks.lock("a").acquire().detach()
    settings.REDIS_LOCKS = {"default": {"BACKEND": f"{__name__}.LocksOnly"}}
    with locks.lock("b") as grant:
        for call in grant.detach, lambda: asyncio.run(grant.adetach()), lambda: locks.attach(text):
            with pytest.raises(InvalidLockBackend) as refused:
                call()
            assert str(refused.value) == "REDIS_LOCKS['default']: detached holds need Redis; LocksOnly can't have them."
            grant.ensure_held()


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

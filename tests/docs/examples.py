"""Registers the names that an example needs, and the check after it; each page has a `docs_*.py` for its examples."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.core.checks import run_checks
from django.http import HttpResponse
from django.test import RequestFactory, override_settings

from django_redis_locks import Grant, locks

MEMORY = "django_redis_locks.backends.memory.MemoryBackend"

Names = dict[str, Any]

GIVEN: dict[str, Callable[[], Names]] = {}
AFTER: dict[str, Callable[[Names], object]] = {}


def given(*examples: str) -> Callable[[Callable[[], Names]], Callable[[], Names]]:
    """Register a function that returns the names that these examples need."""

    def register(function: Callable[[], Names]) -> Callable[[], Names]:
        assert GIVEN.keys().isdisjoint(examples), examples
        GIVEN.update(dict.fromkeys(examples, function))
        return function

    return register


def after(*examples: str) -> Callable[[Callable[[Names], object]], Callable[[Names], object]]:
    """Register a function that checks the names that these examples leave."""

    def register(function: Callable[[Names], object]) -> Callable[[Names], object]:
        assert AFTER.keys().isdisjoint(examples), examples
        AFTER.update(dict.fromkeys(examples, function))
        return function

    return register


def after_each(results: dict[str, Callable[[Names], object]]) -> None:
    """Register checks by example; a check fails if it returns False."""
    assert AFTER.keys().isdisjoint(results), results
    AFTER.update(results)


def hold_elsewhere(key: str) -> Grant:
    """A grant of another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(locks.lock(key).acquire).result()


def get(**headers: str) -> Any:
    return RequestFactory().get("/", headers=headers)


def post(user: Any = None) -> Any:
    request = RequestFactory().post("/")
    request.user = user
    return request


class User:
    def __init__(self, pk: int | None) -> None:
        self.pk = pk
        self.is_authenticated = pk is not None


def is_one_lock(call: Callable[[], HttpResponse], key: str) -> None:
    """The view is served, but not while another thread has that lock."""
    assert call().status_code == 200
    with hold_elsewhere(key):
        response = call()
        assert response.status_code == 409
        assert 1 <= int(response["Retry-After"]) <= 60
        assert response["Cache-Control"] == "no-store"
    assert call().status_code == 200


def problems_of(**settings: Any) -> list[str]:
    """The reports of the system checks for these settings, without those on the memory backend, which other tests use, on
    names that no decorated function has, and on decorators of other tests that the store doesn't support."""
    expected = {"redis_locks.W004", "redis_locks.W060", "redis_locks.W061", "redis_locks.E068"}
    with override_settings(**settings):
        return [str(found) for found in run_checks(tags=["redis_locks"]) if found.id not in expected]

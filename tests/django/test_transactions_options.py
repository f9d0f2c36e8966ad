"""ATOMIC_REQUESTS of calls that need no lock (`methods`, `condition`), and of those whose lock stays (`auto_release`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from django_redis_locks import LockNotAcquired, locks, redis_lock
from tests.django.helpers import held_elsewhere, until
from tests.django.transaction_log import recorded

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture(autouse=True)
def cooled() -> Iterator[None]:
    yield
    locks.lock("order").force_release()


@pytest.fixture
def atomic_requests(two_databases: object) -> None:
    for alias in ("default", "other"):
        connections.settings[alias]["ATOMIC_REQUESTS"] = True


def inside() -> HttpResponse:
    return HttpResponse(" ".join(alias for alias in ("default", "other") if connections[alias].in_atomic_block))


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return inside()


changing = redis_lock("order", methods={"POST"})


class Method(View):
    @changing
    def get(self, request: HttpRequest) -> HttpResponse:
        return inside()


VIEWS: dict[str, Any] = {
    "function": changing(lambda request: inside()),
    "as-view": changing(Plain.as_view()),
    "dispatch": method_decorator(changing, name="dispatch")(type("Dispatch", (Plain,), {})).as_view(),
    "method": Method.as_view(),
    "stacked": redis_lock("outer")(changing(lambda request: inside())),
    "stacked-outer": changing(redis_lock("inner")(lambda request: inside())),
    "condition": redis_lock("order", condition=lambda request: False)(lambda request: inside()),
    "cool-down": redis_lock("order", expire=20, auto_release=False)(lambda request: inside()),
}

urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


@pytest.mark.usefixtures("atomic_requests")
def test_request_that_needs_no_lock_or_keeps_it_runs_in_the_transactions() -> None:
    """[D1] Django left the transactions to the decorator, so they begin without a lock too."""
    for name in VIEWS:
        assert Client().get(f"/{name}/").content == b"default other", name


@pytest.mark.usefixtures("atomic_requests")
def test_request_that_needs_no_lock_passes_while_it_is_held() -> None:
    """[D1] [D20]"""
    with held_elsewhere("order"):
        assert Client().get("/function/").content == b"default other"


@pytest.mark.usefixtures("two_databases")
def test_cool_down_is_not_deferred_to_commit() -> None:
    """[D2] A lock that stays until its lease ends isn't freed with the transaction around the call, nor renewed by it."""

    @redis_lock("order", expire=20, auto_release=False)
    def work() -> None: ...

    with recorded("default") as log:
        with transaction.atomic():
            work()
            with pytest.raises(LockNotAcquired):
                work()
        log.equals("BEGIN default", "acquire order", "COMMIT default")
    until(lambda: locks.lock("order").locked())

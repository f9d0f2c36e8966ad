"""`LockMiddleware` answers for services that raise, in views without a lock of their own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from django_redis_locks import LockAlreadyHeld, LockKeyError, LockNotAcquired, locks, redis_lock
from tests import databases
from tests.django.helpers import Events, held_elsewhere
from tests.django.test_on_conflict import ateapot, teapot, wrong
from tests.probes.django import events

MIDDLEWARE = "django_redis_locks.middleware.LockMiddleware"


@redis_lock("order", status=423, retry_after=7)
def special() -> str:
    return "served"


@redis_lock("cooling", auto_release=False, expire=900)
def cooling() -> str:
    return "served"


@redis_lock("order", on_conflict="raise")
def raising(request: HttpRequest) -> HttpResponse:
    return HttpResponse("served")


def plain(request: HttpRequest) -> HttpResponse:
    with locks.lock("order", wait=0):
        return HttpResponse("served")


async def aplain(request: HttpRequest) -> HttpResponse:
    async with locks.lock("order", wait=0):
        return HttpResponse("served")


def writes(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO attempt VALUES (1)")
    return plain(request)


def twice(request: HttpRequest) -> HttpResponse:
    with locks.lock("order"), locks.lock("order"):
        return HttpResponse("never")


def no_key(request: HttpRequest) -> HttpResponse:
    with locks.lock(""):
        return HttpResponse("never")


urlpatterns = [
    path("plain/", plain),
    path("async-plain/", aplain),
    path("raising/", raising),
    path("special/", lambda request: HttpResponse(special())),
    path("cooling/", lambda request: HttpResponse(cooling())),
    path("writes/", writes),
    path("twice/", twice),
    path("no-key/", no_key),
]


@pytest.fixture(autouse=True)
def installed(settings: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware", MIDDLEWARE]


def get(url: str, *, asgi: bool = False) -> Any:
    async def ask() -> Any:
        return await AsyncClient().get(url)

    return asyncio.run(ask()) if asgi else Client().get(url)


def refused(url: str, *, asgi: bool = False) -> Any:
    with held_elsewhere("order", expire=900):
        return get(url, asgi=asgi)


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
class TestConflicts:
    def test_LockNotAcquired_is_answered_as_by_a_view(self, asgi: bool, caplog: pytest.LogCaptureFixture) -> None:
        """[D 2.4] Of a lock object, or of a view that raises it; with the status, the retry and the cool-down of a
        service."""
        for url in ("/plain/", "/async-plain/", "/raising/", "/special/"):
            caplog.clear()
            with caplog.at_level(logging.INFO):
                response = refused(url, asgi=asgi)
            expected = (423, "7") if url == "/special/" else (409, "60")
            assert (response.status_code, response["Retry-After"]) == expected
            assert response["Cache-Control"] == "no-store"
            assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
            assert get(url).content == b"served"
        assert get("/cooling/").status_code == 200
        response = get("/cooling/", asgi=asgi)
        assert (response.status_code, 870 < int(response["Retry-After"]) <= 900) == (429, True)
        locks.lock("cooling").force_release()

    def test_handler_of_the_settings_answers(self, asgi: bool, memory_locks: Any) -> None:
        """[D52] One that returns no response raises, with the conflict as its cause; "raise" is answered."""
        for handler in (teapot, ateapot, f"{teapot.__module__}.teapot"):
            entry = {"ON_CONFLICT": handler}
            for table in (entry, {"ON_CONFLICT": "raise", "LOCKS": {"order": entry}}):
                memory_locks(**table)
                response = refused("/plain/", asgi=asgi)
                assert (response.status_code, response.content) == (418, b"teapot order 409")
        memory_locks(ON_CONFLICT=wrong)
        with pytest.raises(TypeError, match="a handler returns an HttpResponse, not str") as raised:
            refused("/plain/", asgi=asgi)
        assert isinstance(raised.value.__cause__, LockNotAcquired)
        memory_locks(ON_CONFLICT="raise")
        assert refused("/plain/", asgi=asgi).status_code == 409

    def test_store_that_is_down_is_503(self, asgi: bool, store_down: str, seen: Events) -> None:
        """[D 2.4] And a signal."""
        response = get("/async-plain/" if asgi else "/plain/", asgi=asgi)
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        (event,) = seen.of(events.BackendFailed)
        assert (event.name, event.alias, event.doing) == ("order", "default", "acquire, answered with 503")

    def test_mistake_of_the_program_stays_500(self, asgi: bool) -> None:
        for url, kind in (("/twice/", LockAlreadyHeld), ("/no-key/", LockKeyError)):
            with pytest.raises(kind):
                get(url, asgi=asgi)


def test_transaction_of_a_refused_view_is_rolled_back(tmp_path: Any, django_db_blocker: Any) -> None:
    """[D4] Under ATOMIC_REQUESTS, before it is answered."""
    entry = {**databases.sqlite(tmp_path / "db.sqlite3"), "ATOMIC_REQUESTS": True}
    with django_db_blocker.unblock(), databases.as_default(entry), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE attempt (n int)")
        assert refused("/writes/").status_code == 409
        cursor.execute("SELECT count(*) FROM attempt")
        assert cursor.fetchone() == (0,)

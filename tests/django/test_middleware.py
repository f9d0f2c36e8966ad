"""`LockMiddleware` answers for services that raise, in views without a lock of their own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from django_redis_locks import LockAlreadyHeld, LockKeyError, LockNotAcquired, locks, redis_lock
from tests import databases
from tests.django.helpers import Events, held_elsewhere, in_thread
from tests.probes.django import events

MIDDLEWARE = "django_redis_locks.middleware.LockMiddleware"


def teapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    return HttpResponse(f"teapot {request.path}", status=418)


async def ateapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    return teapot(request, refused)


def wrong(request: HttpRequest, refused: LockNotAcquired) -> Any:
    return "busy"


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
    path("twice/", twice),
    path("no-key/", no_key),
]


@pytest.fixture(autouse=True)
def installed(settings: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware", MIDDLEWARE]


def refused(url: str, *, asynchronous: bool = False) -> Any:
    async def ask() -> Any:
        return await AsyncClient().get(url)

    with held_elsewhere("order", expire=900):
        return asyncio.run(ask()) if asynchronous else Client().get(url)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["wsgi", "asgi"])
class TestConflicts:
    @pytest.mark.parametrize("url", ["/plain/", "/async-plain/", "/raising/"])
    def test_LockNotAcquired_is_answered_as_by_a_view(
        self, url: str, asynchronous: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D 2.4] Of a lock object, or of a view that raises it."""
        with caplog.at_level(logging.INFO):
            response = refused(url, asynchronous=asynchronous)
        assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (409, "60", "no-store")
        assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
        assert Client().get(url).content == b"served"

    def test_status_retry_after_and_cool_down_of_a_service_are_answered(self, asynchronous: bool) -> None:
        response = refused("/special/", asynchronous=asynchronous)
        assert (response.status_code, response["Retry-After"]) == (423, "7")
        assert Client().get("/cooling/").status_code == 200
        response = refused("/cooling/", asynchronous=asynchronous)
        assert (response.status_code, 870 < int(response["Retry-After"]) <= 900) == (429, True)
        locks.lock("cooling").force_release()

    def test_handler_of_the_settings_answers(self, asynchronous: bool, memory_locks: Any) -> None:
        for handler in (teapot, ateapot, f"{__name__}.teapot"):
            entry = {"ON_CONFLICT": handler}
            for table in (entry, {"ON_CONFLICT": "raise", "LOCKS": {"order": entry}}):
                memory_locks(**table)
                response = refused("/plain/", asynchronous=asynchronous)
                assert (response.status_code, response.content) == (418, b"teapot /plain/")

    def test_handler_that_returns_no_response_raises_TypeError(self, asynchronous: bool, memory_locks: Any) -> None:
        """[D52] With the conflict as its cause."""
        memory_locks(ON_CONFLICT=wrong)
        with pytest.raises(TypeError, match="a handler returns an HttpResponse, not str") as raised:
            refused("/plain/", asynchronous=asynchronous)
        assert isinstance(raised.value.__cause__, LockNotAcquired)

    def test_raise_in_the_settings_is_answered(self, asynchronous: bool, memory_locks: Any) -> None:
        memory_locks(ON_CONFLICT="raise")
        assert refused("/plain/", asynchronous=asynchronous).status_code == 409

    def test_store_that_is_down_is_503(self, asynchronous: bool, store_down: str, seen: Events) -> None:
        """[D 2.4] And a signal."""
        response = refused_down(asynchronous)
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        (event,) = seen.of(events.BackendFailed)
        assert (event.name, event.alias, event.doing) == ("order", "default", "acquire, answered with 503")

    @pytest.mark.parametrize(("url", "kind"), [("/twice/", LockAlreadyHeld), ("/no-key/", LockKeyError)])
    def test_mistake_of_the_program_stays_500(self, url: str, kind: type[Exception], asynchronous: bool) -> None:
        client: Any = AsyncClient() if asynchronous else Client()
        with pytest.raises(kind):
            asyncio.run(client.get(url)) if asynchronous else in_thread(lambda: client.get(url))


def refused_down(asynchronous: bool) -> Any:
    async def ask() -> Any:
        return await AsyncClient().get("/async-plain/")

    return asyncio.run(ask()) if asynchronous else Client().get("/plain/")


def test_transaction_of_a_refused_view_is_rolled_back(tmp_path: Any, django_db_blocker: Any) -> None:
    """[D4] Under ATOMIC_REQUESTS, before it is answered."""
    from django.db import connection

    def writes(request: HttpRequest) -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO attempt VALUES (1)")
        return plain(request)

    urlpatterns.append(path("writes/", writes))
    entry = {**databases.sqlite(tmp_path / "db.sqlite3"), "ATOMIC_REQUESTS": True}
    with django_db_blocker.unblock(), databases.as_default(entry), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE attempt (n int)")
        try:
            assert refused("/writes/").status_code == 409
        finally:
            urlpatterns.pop()
        cursor.execute("SELECT count(*) FROM attempt")
        assert cursor.fetchone() == (0,)

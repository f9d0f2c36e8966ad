"""What a view answers when its lock is busy: 409 as text or JSON; and where LockNotAcquired is raised instead."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import re
import socket
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import redis
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils import translation
from django.utils.decorators import method_decorator
from django.views import View

from django_redis_locks import (
    LockAlreadyHeld,
    LockError,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    answers,
    locks,
    redis_lock,
)
from tests.django.helpers import held_elsewhere, in_thread

KEY = "patient:jane-doe"
TEXT = b"This is being worked on by another request. Try again in a moment.\n"


@redis_lock(KEY, name="patient")
def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock(KEY, name="patient")
async def aview(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


# A service that is handed the request, and its callers


@redis_lock("service")
def service(request: HttpRequest) -> str:
    return "served"


@redis_lock("service")
async def aservice(request: HttpRequest) -> str:
    return "served"


@redis_lock("service")
def service_by_keyword(amount: int, currency: str, *, request: HttpRequest) -> str:
    return "served"


def answering(call: Callable[..., str]) -> Callable[..., HttpResponse]:
    """A view that answers with what a service returns, or 418 and the error that it raises."""

    @functools.wraps(call)
    def caller(*args: Any) -> HttpResponse:
        try:
            return HttpResponse(call(*args))
        except LockError as error:
            return HttpResponse(type(error).__name__, status=418)

    return caller


@answering
def calls_service(request: HttpRequest) -> str:
    return service(request)


@answering
def calls_service_by_keyword(request: HttpRequest) -> str:
    return service_by_keyword(5, "eur", request=request)


async def acalls_service(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(await aservice(request))
    except LockError as error:
        return HttpResponse(type(error).__name__, status=418)


class OfClass(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return calls_service(request)


class DecoratedGet(View):
    get = redis_lock("get of service")(OfClass.get)


class HelperOfClass(View):
    @answering
    def get(self, request: HttpRequest) -> str:
        return self.helper(request)

    @redis_lock("service")
    def helper(self, request: HttpRequest) -> str:
        return "served"


class AsyncHelperOfClass(View):
    """Its helper is a plain function, though its handlers are async."""

    async def get(self, request: HttpRequest) -> HttpResponse:
        return await asyncio.to_thread(answering(self.helper), request)

    @redis_lock("service")
    def helper(self, request: HttpRequest) -> str:
        return "served"


SERVICES = {
    "undecorated": calls_service,
    "undecorated-by-keyword": calls_service_by_keyword,
    "decorated": redis_lock("view of service")(calls_service),
    "stacked": redis_lock("outer of service")(redis_lock("inner of service")(calls_service)),
    "async-undecorated": acalls_service,
    "async-decorated": redis_lock("async view of service")(acalls_service),
    "class": OfClass.as_view(),
    "class-as-view": redis_lock("as view of service")(OfClass.as_view()),
    "decorated-class": method_decorator(redis_lock("dispatch"), name="dispatch")(type("Own", (OfClass,), {})).as_view(),
    "decorated-get": DecoratedGet.as_view(),
    "helper-of-class": HelperOfClass.as_view(),
    "async-helper-of-class": AsyncHelperOfClass.as_view(),
}

urlpatterns = [path("view/", view), path("async-view/", aview)]
urlpatterns += [path(f"{name}/", function) for name, function in SERVICES.items()]


def refused(path: str = "/view/", **headers: str) -> Any:
    with held_elsewhere(KEY, name="patient"):
        return Client().get(path, headers=headers)


@pytest.mark.parametrize("path", ["/view/", "/async-view/"])
class TestAnswer:
    def test_busy_lock_is_409_with_a_text(self, path: str) -> None:
        """[D25] Clients such as urllib3 repeat 413, 429 and 503 with Retry-After, unasked: 409 is none of them."""
        for accept in ("", "*/*", "text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "text/*", "image/png"):
            response = refused(path, accept=accept)
            assert (response.status_code, response.reason_phrase) == (409, "Conflict"), accept
            assert response["Content-Type"] == "text/plain; charset=utf-8"
            assert response["Cache-Control"] == "no-store"
            assert response["Retry-After"] in ("29", "30")
            assert response.content == TEXT

    def test_client_that_prefers_json_gets_problem_details(self, path: str) -> None:
        for accept in (
            "application/json",
            "application/problem+json",
            "application/json, text/plain;q=0.5",
            "text/html;q=0.9, application/*",
        ):
            response = refused(path, accept=accept)
            assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json"), accept
            detail = TEXT.decode().strip()
            assert json.loads(response.content) == {
                "type": "about:blank",
                "title": "Conflict",
                "status": 409,
                "detail": detail,
            }
            assert response["Retry-After"] in ("29", "30")

    def test_answer_names_neither_key_nor_holder(self, path: str) -> None:
        """[F18]"""
        for accept in ("text/plain", "application/json"):
            response = refused(path, accept=accept)
            shown = f"{response.serialize()!r} {response.headers!r}"
            for secret in (KEY, "patient", "jane", socket.gethostname(), str(os.getpid()), "Thread", "default"):
                assert secret not in shown

    def test_text_is_translated(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "_", lambda text: text.upper())
        with translation.override("de"):
            assert refused(path).content == TEXT.upper()


def test_retry_after_is_the_rest_of_the_holders_lease_from_1_to_60(rf: RequestFactory, store: str) -> None:
    for left, expected in (
        *((0.0, "1"), (0.001, "1"), (0.99, "1"), (1.0, "1"), (1.001, "2")),
        *((29.5, "30"), (60.0, "60"), (3600.0, "60")),
    ):
        error = LockNotAcquired("busy", retry_after=left, key=KEY, name="patient", alias="default")
        assert answers.answer(rf.get("/"), error)["Retry-After"] == expected, left
    for expire, shown in ((29.5, range(2, 31)), (900, [60])):
        with held_elsewhere(KEY, expire=expire):
            assert int(Client().get("/view/")["Retry-After"]) in shown


def test_contention_is_logged_once_at_info(caplog: pytest.LogCaptureFixture) -> None:
    """[D26] With the name and not the key."""
    with caplog.at_level(logging.DEBUG, "django_redis_locks"), held_elsewhere(KEY, name="patient"):
        caplog.clear()
        Client().get("/view/")
        ours = [record for record in caplog.records if record.name.startswith("django_redis_locks")]
    (record,) = ours
    assert (record.levelname, record.name) == ("INFO", "django_redis_locks.acquire")
    assert re.fullmatch(r"Lock patient is busy, given up after \d+\.\d{3} s", record.getMessage())


@redis_lock("order:{pk}")
def work(pk: int) -> None:
    pass


class TestRaises:
    @pytest.mark.parametrize("name", SERVICES)
    def test_service_that_is_handed_the_request_raises(self, rf: RequestFactory, name: str) -> None:
        """[D 2.5] It doesn't return a response to a caller that expects something else. Under WSGI and ASGI, and where
        the view is called by hand."""

        def by_hand(_: str) -> Any:
            response = SERVICES[name](rf.get("/"))
            return asyncio.run(response) if asyncio.iscoroutine(response) else response

        async def ask(url: str) -> HttpResponse:
            return await AsyncClient().get(url)

        asks = [Client().get]
        asks += [lambda url: asyncio.run(ask(url))] if "async" in name else []
        asks += [by_hand] if "helper-of-class" in name else []
        for get in asks:
            with held_elsewhere("service"):
                response = get(f"/{name}/")
            assert (response.status_code, response.content) == (418, b"LockNotAcquired")
            assert get(f"/{name}/").content == b"served"

    def test_service_raises_when_the_store_is_down(self, store_down: str) -> None:
        assert Client().get("/undecorated/").content == b"LockBackendError"

    def test_view_called_by_hand_answers(self, rf: RequestFactory) -> None:
        """With a request that went through no URL. A key that can't be filled raises."""
        with held_elsewhere(KEY):
            assert view(rf.get("/")).status_code == 409
            assert asyncio.run(aview(rf.get("/"))).status_code == 409
            assert view(request=rf.get("/")).status_code == 409
        with pytest.raises(LockKeyError):
            redis_lock("order:{request.GET[pk]}")(lambda request: HttpResponse())(rf.get("/"))

    def test_call_without_a_request_raises_and_names_lock_and_holder(self) -> None:
        """The message has the name and not the key."""
        with held_elsewhere("order:5", name="order"), pytest.raises(LockNotAcquired) as raised:
            work(5)
        error = raised.value
        assert error.key == "order:5"
        assert (error.holder.host, error.holder.pid) == (socket.gethostname(), os.getpid())
        assert str(error).startswith("lock 'order:{pk}' is busy, held by ")
        assert "order:5" not in str(error)

    def test_view_with_a_wrapped_request_answers(self, rf: RequestFactory) -> None:
        """As Django REST framework wraps Django's."""

        class Wrapped:
            _request = rf.get("/", headers={"accept": "application/json"})

        request: Any = Wrapped()
        with held_elsewhere("get of service"):
            response = DecoratedGet().get(request)
        assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")


def already_held() -> None:
    with locks.lock("order:5"):
        locks.lock("order:5").acquire()


def released_twice() -> None:
    with locks.lock("order:5") as grant:
        grant.release()
        grant.ensure_held()


class TestMessages:
    def test_every_error_has_key_name_and_alias_and_hides_the_key(self, store: str) -> None:
        for kind, fail in (
            (LockAlreadyHeld, already_held),
            (LockNotOwned, lambda: locks.lock("order:5").release()),
            (LockLost, released_twice),
            (LockNotAcquired, lambda: in_thread(locks.lock("order:5", wait=0).acquire)),
        ):
            other = held_elsewhere("order:5") if kind is LockNotAcquired else nullcontext()
            with other, pytest.raises(kind) as raised:
                fail()
            error = raised.value
            assert (error.key, error.name, error.alias) == ("order:5", "order", "default")
            assert "'order'" in str(error)
            assert "order:5" not in f"{error} {error!r}"

    def test_foreign_value_under_the_key_raises_LockKeyError(self, redis_locks: str) -> None:
        """[F6] The message says what it found, and what to do."""
        with redis.Redis.from_url(redis_locks) as client:
            client.set("lock:{0}:k:order:5", "x")
        with pytest.raises(LockKeyError, match=r"can't lock 'order' of alias 'default': its key holds") as raised:
            locks.lock("order:5").acquire()
        assert (raised.value.key, raised.value.name, raised.value.alias) == ("order:5", "order", "default")
        assert "order:5" not in str(raised.value)

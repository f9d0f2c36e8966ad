"""Responses of views with a busy lock: 409 as text or JSON, `status=` and `retry_after=`, pages of the project; and
calls that raise LockNotAcquired instead."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import socket
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from django.http import Http404, HttpRequest, HttpResponse
from django.template import TemplateSyntaxError
from django.test import RequestFactory
from django.urls import path
from django.utils import translation
from django.views import View

from django_redis_locks import LockError, LockNotAcquired, answers, redis_lock
from tests.django import helpers
from tests.django.helpers import held_elsewhere, send_request

KEY = "patient:jane-doe"
TEXT = "This is being worked on by another request. Try again in a moment.\n"


@redis_lock(KEY, name="patient")
def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock(KEY, name="patient")
async def aview(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


# A service that gets the request as argument, and its callers


@redis_lock("service")
def service(request: HttpRequest) -> str:
    return "served"


@redis_lock("service")
async def aservice(request: HttpRequest) -> str:
    return "served"


def answering(call: Callable[..., str]) -> Callable[..., HttpResponse]:
    """A view that responds with the result of a service, or with 418 and its exception."""

    @functools.wraps(call)
    def caller(*args: Any) -> HttpResponse:
        try:
            return HttpResponse(call(*args))
        except LockError as error:
            return HttpResponse(type(error).__name__, status=418)

    return caller


calls_service = answering(lambda request: service(request))  # noqa: PLW0108 - a function that isn't marked as decorated


async def acalls_service(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(await aservice(request))
    except LockError as error:
        return HttpResponse(type(error).__name__, status=418)


def calls_get(self: View, request: HttpRequest) -> HttpResponse:
    return calls_service(request)


class HelperOfClass(View):
    @answering
    def get(self, request: HttpRequest) -> str:
        return self.helper(request)

    @redis_lock("service")
    def helper(self, request: HttpRequest) -> str:
        return "served"


SERVICES = {
    "undecorated": calls_service,
    "decorated": redis_lock("view of service")(calls_service),
    "async-decorated": redis_lock("async view of service")(acalls_service),
    "decorated-get": type("DecoratedGet", (View,), {"get": redis_lock("get of service")(calls_get)}).as_view(),
    "helper-of-class": HelperOfClass.as_view(),
}

# Pages of a project


PAGE = "<p>{{ status }} {{ detail }} {{ retry_after }} {{ request.path }}</p>"


def call_twice(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A decorator that calls a view again; its lock is busy the second time."""

    @functools.wraps(view)
    def again(request: HttpRequest) -> HttpResponse:
        with pytest.raises(Http404):
            view(request)
        with held_elsewhere("tried again"):
            assert view(request).status_code == 409
        return view(request)

    return again


@redis_lock("tried again")
def not_found(request: HttpRequest) -> HttpResponse:
    raise Http404


VIEWS = {
    **SERVICES,
    "view": view,
    "async-view": aview,
    "locked": redis_lock(KEY, status=423, retry_after=False)(view.__wrapped__),
    "server-error": redis_lock(KEY, status=503)(view.__wrapped__),
    "cooling": redis_lock(KEY, auto_release=False, expire=900)(view.__wrapped__),
    "tried-again": call_twice(not_found),
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


@pytest.fixture
def pages(settings: Any) -> Callable[[dict[str, str]], None]:
    """`pages({name: text})`: gives the project these templates."""

    def have(templates: dict[str, str]) -> None:
        loaders = [("django.template.loaders.locmem.Loader", templates)]
        processors = ["django.template.context_processors.request"]
        engine = "django.template.backends.django.DjangoTemplates"
        settings.TEMPLATES = [{"BACKEND": engine, "OPTIONS": {"loaders": loaders, "context_processors": processors}}]

    return have


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def refused(url: str, accept: str = BROWSER, method: str = "get", *, asgi: bool = False) -> Any:
    return helpers.send_refused_request(url, method, key=KEY, asgi=asgi, accept=accept)


TEXTS = ["", "*/*", "text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "text/*", "image/png"]
PROBLEMS = ["application/json", "application/problem+json", "application/json, text/plain;q=0.5"]
PROBLEMS += ["text/html;q=0.9, application/*"]


class TestAnswer:
    @pytest.mark.parametrize("path", ["/view/", "/async-view/"])
    def test_busy_lock_is_409_as_text_or_as_problem_details(self, path: str) -> None:
        """[D25] [F18] Unlike 413, 429 and 503 it isn't retried automatically by clients such as urllib3. The response
        doesn't contain key or holder."""
        problem = {"type": "about:blank", "title": "Conflict", "status": 409, "detail": TEXT.strip()}
        for accept in (*TEXTS, *PROBLEMS):
            response = refused(path, accept)
            assert (response.status_code, response.reason_phrase) == (409, "Conflict"), accept
            assert (response["Cache-Control"], response["Retry-After"]) == ("no-store", "60")
            if accept in PROBLEMS:
                assert response["Content-Type"] == "application/problem+json"
                assert json.loads(response.content) == problem
            else:
                assert response["Content-Type"] == "text/plain; charset=utf-8"
                assert response.content == TEXT.encode()
            shown = f"{response.serialize()!r} {response.headers!r}"
            for secret in (KEY, "patient", "jane", socket.gethostname(), str(os.getpid()), "Thread", "default"):
                assert secret not in shown

    def test_text_is_translated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "_", lambda text: text.upper())
        with translation.override("de"):
            assert refused("/view/").content == TEXT.upper().encode()

    def test_status_and_its_title_are_answered(self, rf: RequestFactory) -> None:
        for status, title in ((400, "Bad Request"), (423, "Locked"), (503, "Service Unavailable"), (499, "Refused")):
            locked = redis_lock(KEY, status=status)(aview.__wrapped__ if status == 423 else view.__wrapped__)
            with held_elsewhere(KEY, expire=900):
                response = locked(rf.get("/", headers={"accept": "application/json"}))
                response = asyncio.run(response) if status == 423 else response
            problem = json.loads(response.content)
            assert (response.status_code, problem["status"], problem["title"]) == (status, status, title)
            assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")

    def test_retry_after_is_the_rest_of_the_lease_or_the_given_seconds(self, rf: RequestFactory, store: str) -> None:
        """True is the default, False sends none. The rest of a lease is limited to 1 to 60 seconds."""
        for left, seconds in ((0.0, "1"), (0.99, "1"), (1.0, "1"), (1.001, "2"), (29.5, "30"), (3600.0, "60")):
            error = LockNotAcquired("busy", retry_after=left, key=KEY, name="patient", alias="default")
            assert answers.answer(rf.get("/"), error)["Retry-After"] == seconds, left
        for option, expire, expected in (
            *((None, 29.5, range(2, 31)), (True, 900, [60])),
            *((7, 900, [7]), (900, 30, [900]), (False, 900, [0])),
        ):
            with held_elsewhere(KEY, expire=expire):
                response = redis_lock(KEY, retry_after=option)(view.__wrapped__)(rf.get("/"))
            assert (response.status_code, "Retry-After" in response) == (409, option is not False)
            assert int(response.get("Retry-After", 0)) in expected, option


@redis_lock("order:{pk}")
def work(pk: int) -> None:
    pass


class TestRaises:
    @pytest.mark.parametrize("name", SERVICES)
    def test_service_called_with_the_request_raises(self, rf: RequestFactory, name: str) -> None:
        """Its caller doesn't expect a response. Under WSGI and ASGI, and when the view is called directly."""

        def by_hand(_: str) -> Any:
            response = SERVICES[name](rf.get("/"))
            return asyncio.run(response) if asyncio.iscoroutine(response) else response

        asks: list[Any] = [send_request, functools.partial(send_request, asgi=True)][: 1 + ("async" in name)]
        asks += [by_hand] if "helper-of-class" in name else []
        for call in asks:
            with held_elsewhere("service"):
                response = call(f"/{name}/")
            assert (response.status_code, response.content) == (418, b"LockNotAcquired")
            assert call(f"/{name}/").content == b"served"

    def test_service_raises_when_the_store_is_down(self, store_down: str) -> None:
        assert send_request("/undecorated/").content == b"LockBackendError"

    def test_view_called_directly_responds(self, rf: RequestFactory) -> None:
        """With a request that no URL resolved."""
        with held_elsewhere(KEY):
            assert view(request=rf.get("/")).status_code == 409
            assert asyncio.run(aview(rf.get("/"))).status_code == 409
        assert redis_lock("order:{request.GET[pk]}")(lambda request: HttpResponse())(rf.get("/")).status_code == 400


class TestPages:
    def test_browser_gets_the_page_of_the_project(self, pages: Any) -> None:
        """The context has the request, but neither key nor holder. Under ASGI it is rendered in a thread, so that it
        may use the session and the database. The response to HEAD has the same headers and no body."""
        pages({"redis_locks/409.html": PAGE})
        for url, asgi in (("/view/", False), ("/async-view/", False), ("/async-view/", True)):
            response = refused(url, asgi=asgi)
            assert (response.status_code, response["Content-Type"]) == (409, "text/html; charset=utf-8")
            assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
            assert response.content.decode() == f"<p>409 {TEXT.strip()} 60 {url}</p>"
            known = repr([*response.context_data.values()])
            assert response.context_data.keys() == {"status", "detail", "retry_after"}
            for secret in ("patient", "jane", socket.gethostname(), str(os.getpid()), "Thread", "default"):
                assert secret not in known
        for accept in (BROWSER, "application/json", "text/plain"):
            response = refused("/view/", accept, "head")
            assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (409, "60", "no-store")
            assert response.content == b""

    def test_only_clients_that_prefer_html_get_the_page(self, pages: Any) -> None:
        pages({"redis_locks/409.html": PAGE})
        for accept, kind in (
            ("text/html", "text/html"),
            ("text/html;q=0.9, */*;q=0.8", "text/html"),
            ("application/json, text/html;q=0.9", "application/problem+json"),
            ("text/plain, text/html;q=0.9", "text/plain"),
            ("*/*", "text/plain"),
            ("image/png", "text/plain"),
            ("", "text/plain"),
        ):
            assert refused("/view/", accept)["Content-Type"].startswith(kind), accept

    def test_template_of_the_status_is_used(self, pages: Any, request: pytest.FixtureRequest) -> None:
        for url, status, retry_after in (
            ("/locked/", 423, [0]),
            ("/cooling/", 429, range(870, 901)),
            ("/server-error/", 503, [60]),
            ("store_down", 503, [5]),
        ):
            if url == "store_down":
                request.getfixturevalue(url)
            pages({"redis_locks/409.html": "no", f"redis_locks/{status}.html": "{{ status }} {{ retry_after }}"})
            response = refused(url) if url != "store_down" else send_request("/view/", accept=BROWSER)
            assert response.status_code == status
            assert response.content.decode() == f"{status} {response.get('Retry-After')}"
            assert int(response.get("Retry-After", 0)) in retry_after

    def test_project_without_the_template_sends_the_next_accepted_type(self, pages: Any, settings: Any) -> None:
        """Or without a template engine. A template with an error raises."""
        pages({})
        for _ in range(2):
            for accept in (BROWSER, "text/html"):
                assert refused("/view/", accept).content == TEXT.encode()
            assert json.loads(refused("/view/", "text/html, application/json;q=0.9").content)["status"] == 409
            settings.TEMPLATES = []
        pages({"redis_locks/409.html": "{% nothing %}"})
        with pytest.raises(TemplateSyntaxError):
            refused("/view/")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.name, record.levelname) for record in caplog.records]


OURS = ("django_redis_locks.acquire", "INFO")


class TestLog:
    def test_busy_lock_is_logged_at_info(self, pages: Any, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] It is logged once at INFO, without Django's WARNING for each 4xx. Under WSGI and ASGI, with and without
        a page, and after a change of the logging settings."""
        logging.getLogger("django.request").filters.clear()
        for url, asgi in product(("/view/", "/async-view/", "/locked/"), (False, True)):
            for templates in ({}, {"redis_locks/409.html": PAGE}):
                pages(templates)
                caplog.clear()
                with caplog.at_level(logging.INFO):
                    refused(url, asgi=asgi)
                assert lines(caplog) == [OURS], url

    def test_status_from_500_on_is_logged_as_an_error(
        self, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
    ) -> None:
        """[D26] By Django; an unreachable store is also logged by this library."""
        with caplog.at_level(logging.INFO):
            refused("/server-error/")
            assert lines(caplog) == [OURS, ("django.request", "ERROR")]
            caplog.clear()
            request.getfixturevalue("store_down")
            send_request("/view/")
        assert lines(caplog) == [("django_redis_locks.backend", "ERROR"), ("django.request", "ERROR")]

    def test_other_4xx_are_still_logged_as_warnings(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] Also for a view that was refused first and is called again."""
        refused("/view/")
        caplog.clear()
        send_request("/no-such-page/")
        assert send_request("/tried-again/").status_code == 404
        assert [line for line in lines(caplog) if line[0] == "django.request"] == [("django.request", "WARNING")] * 2

"""What a view answers when its lock is busy: 409 as text or JSON, or what `status=` and `retry_after=` say; and where
LockNotAcquired is raised instead."""

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
from tests.django.helpers import ask, held_elsewhere

KEY = "patient:jane-doe"
TEXT = "This is being worked on by another request. Try again in a moment.\n"


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


def answering(call: Callable[..., str]) -> Callable[..., HttpResponse]:
    """A view that answers with what a service returns, or 418 and the error that it raises."""

    @functools.wraps(call)
    def caller(*args: Any) -> HttpResponse:
        try:
            return HttpResponse(call(*args))
        except LockError as error:
            return HttpResponse(type(error).__name__, status=418)

    return caller


calls_service = answering(lambda request: service(request))  # noqa: PLW0108 - a function without our mark


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


def tried_again(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A decorator that tries a view again, whose lock is busy the second time."""

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
    "tried-again": tried_again(not_found),
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


@pytest.fixture
def pages(settings: Any) -> Callable[[dict[str, str]], None]:
    """Gives the project templates."""

    def have(templates: dict[str, str]) -> None:
        loaders = [("django.template.loaders.locmem.Loader", templates)]
        processors = ["django.template.context_processors.request"]
        engine = "django.template.backends.django.DjangoTemplates"
        settings.TEMPLATES = [{"BACKEND": engine, "OPTIONS": {"loaders": loaders, "context_processors": processors}}]

    return have


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def refused(url: str, accept: str = BROWSER, method: str = "get", *, asgi: bool = False) -> Any:
    return helpers.refused(url, method, key=KEY, asgi=asgi, accept=accept)


TEXTS = ["", "*/*", "text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "text/*", "image/png"]
PROBLEMS = ["application/json", "application/problem+json", "application/json, text/plain;q=0.5"]
PROBLEMS += ["text/html;q=0.9, application/*"]


class TestAnswer:
    @pytest.mark.parametrize("path", ["/view/", "/async-view/"])
    def test_busy_lock_is_409_as_text_or_as_problem_details(self, path: str) -> None:
        """[D25] [F18] Clients such as urllib3 repeat 413, 429 and 503 with Retry-After, unasked: 409 is none of them. No
        answer names key or holder."""
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
        """True is the default, False sends none; the rest of a lease is from 1 to 60."""
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
    def test_service_that_is_handed_the_request_raises(self, rf: RequestFactory, name: str) -> None:
        """[D 2.5] It doesn't return a response to a caller that expects something else. Under WSGI and ASGI, and where
        the view is called by hand."""

        def by_hand(_: str) -> Any:
            response = SERVICES[name](rf.get("/"))
            return asyncio.run(response) if asyncio.iscoroutine(response) else response

        asks: list[Any] = [ask, functools.partial(ask, asgi=True)][: 1 + ("async" in name)]
        asks += [by_hand] if "helper-of-class" in name else []
        for call in asks:
            with held_elsewhere("service"):
                response = call(f"/{name}/")
            assert (response.status_code, response.content) == (418, b"LockNotAcquired")
            assert call(f"/{name}/").content == b"served"

    def test_service_raises_when_the_store_is_down(self, store_down: str) -> None:
        assert ask("/undecorated/").content == b"LockBackendError"

    def test_view_called_by_hand_answers(self, rf: RequestFactory) -> None:
        """With a request that went through no URL."""
        with held_elsewhere(KEY):
            assert view(request=rf.get("/")).status_code == 409
            assert asyncio.run(aview(rf.get("/"))).status_code == 409
        assert redis_lock("order:{request.GET[pk]}")(lambda request: HttpResponse())(rf.get("/")).status_code == 400


class TestPages:
    def test_browser_gets_the_page_of_the_project(self, pages: Any) -> None:
        """[D 2.4] With the request at hand, and neither key nor holder. Under ASGI it is rendered in a thread: its context
        may ask the session and the database. The answer to HEAD has the same headers and no body."""
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
            response = refused(url) if url != "store_down" else ask("/view/", accept=BROWSER)
            assert response.status_code == status
            assert response.content.decode() == f"{status} {response.get('Retry-After')}"
            assert int(response.get("Retry-After", 0)) in retry_after

    def test_project_without_the_template_sends_the_next_type(self, pages: Any, settings: Any) -> None:
        """Or without templates at all. One that is broken raises."""
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
    def test_conflict_is_no_warning(self, pages: Any, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] One line of ours at INFO; Django's WARNING of each 4xx isn't written. Under WSGI and ASGI, with a page
        and without one, and whatever has been configured meanwhile."""
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
        """[D26] By Django; a store that is down by us, too."""
        with caplog.at_level(logging.INFO):
            refused("/server-error/")
            assert lines(caplog) == [OURS, ("django.request", "ERROR")]
            caplog.clear()
            request.getfixturevalue("store_down")
            ask("/view/")
        assert lines(caplog) == [("django_redis_locks.backend", "ERROR"), ("django.request", "ERROR")]

    def test_other_4xx_are_still_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] Also of a view that was refused first, and is tried again."""
        refused("/view/")
        caplog.clear()
        ask("/no-such-page/")
        assert ask("/tried-again/").status_code == 404
        assert [line for line in lines(caplog) if line[0] == "django.request"] == [("django.request", "WARNING")] * 2

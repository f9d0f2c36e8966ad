"""Pages of a project for browsers, the log of a refusal, and a view that is tried again."""

from __future__ import annotations

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
from django.template.response import TemplateResponse
from django.urls import path

from django_redis_locks import LockError, current_grant, redis_lock
from tests.django import helpers
from tests.django.helpers import ask, held_elsewhere
from tests.django.test_answers import KEY, TEXT, aview, view

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PAGE = "<p>{{ status }} {{ detail }} {{ retry_after }} {{ request.path }}</p>"


def having(**options: Any) -> Callable[[HttpRequest], HttpResponse]:
    return redis_lock(KEY, **options)(lambda request: HttpResponse("done"))


# A decorator that tries a view again


def retried(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    @functools.wraps(view)
    def again(request: HttpRequest) -> HttpResponse:
        with pytest.raises(ConnectionError):
            view(request)
        with held_elsewhere("retried"):
            return view(request)

    return again


def fails(request: HttpRequest) -> HttpResponse:
    raise ConnectionError


@redis_lock("helper")
def helper(request: HttpRequest) -> str:
    return "served"


def asks_helper(request: HttpRequest) -> dict[str, str]:
    """As a context processor or a template's tag would."""
    try:
        return {"helped": helper(request)}
    except LockError:
        return {"helped": "refused"}


@redis_lock("rendered")
def rendered(request: HttpRequest) -> HttpResponse:
    return TemplateResponse(request, "helped.html")


def refused_twice(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    @functools.wraps(view)
    def again(request: HttpRequest) -> HttpResponse:
        with held_elsewhere("not found"):
            assert view(request).status_code == 409
        return view(request)

    return again


@refused_twice
@redis_lock("not found")
def not_found(request: HttpRequest) -> HttpResponse:
    raise Http404


def key_of(request: HttpRequest) -> str:
    return f"keyed:{asks_helper(request)['helped']}"


@redis_lock(key=key_of)
def keyed(request: HttpRequest) -> HttpResponse:
    return HttpResponse(current_grant().key)  # type: ignore[union-attr]


urlpatterns = [
    path("keyed/", keyed),
    path("view/", view),
    path("async-view/", aview),
    path("locked/", having(status=423, retry_after=False)),
    path("server-error/", having(status=503)),
    path("cooling/", having(auto_release=False, expire=900)),
    path("retried/", retried(redis_lock("retried")(fails))),
    path("retried-stacked/", retried(redis_lock("outer of retried")(redis_lock("retried")(fails)))),
    path("rendered/", rendered),
    path("not-found/", not_found),
]


@pytest.fixture
def pages(settings: Any) -> Callable[[dict[str, str]], None]:
    """Gives the project templates."""

    def have(templates: dict[str, str]) -> None:
        loaders = [("django.template.loaders.locmem.Loader", templates)]
        processors = ["django.template.context_processors.request", f"{__name__}.asks_helper"]
        engine = "django.template.backends.django.DjangoTemplates"
        settings.TEMPLATES = [{"BACKEND": engine, "OPTIONS": {"loaders": loaders, "context_processors": processors}}]

    return have


def refused(url: str, accept: str = BROWSER, method: str = "get", *, asgi: bool = False) -> Any:
    return helpers.refused(url, method, key=KEY, asgi=asgi, accept=accept)


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
        and without one."""
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
        """[D26] Also of a view that was refused first."""
        refused("/view/")
        caplog.clear()
        ask("/no-such-page/")
        ask("/not-found/")
        assert [line for line in lines(caplog) if line[0] == "django.request"] == [("django.request", "WARNING")] * 2

    def test_log_filter_is_installed_once(self) -> None:
        before = len(logging.getLogger("django.request").filters)
        for _ in range(3):
            refused("/view/")
        assert len(logging.getLogger("django.request").filters) in (before, before + 1)
        logging.getLogger("django.request").filters.clear()
        refused("/view/")
        assert len(logging.getLogger("django.request").filters) == 1


class TestTriedAgain:
    def test_view_that_is_tried_again_and_busy_by_then_is_409(self) -> None:
        for url in ("/retried/", "/retried-stacked/"):
            assert ask(url).status_code == 409, url

    def test_helper_called_by_a_template_or_a_key_raises(self, pages: Any) -> None:
        """It is no view, although the view has returned."""
        pages({"helped.html": "{{ helped }}", "redis_locks/409.html": "{{ helped }}"})
        assert ask("/rendered/").content == b"served"
        with held_elsewhere("helper"):
            assert ask("/rendered/").content == b"refused"
            assert refused("/view/").content == b"refused"
            assert ask("/keyed/").content == b"keyed:refused"

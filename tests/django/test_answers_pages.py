"""Pages of a project for browsers, the log of a refusal, and a view that is tried again."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.http import Http404, HttpRequest, HttpResponse
from django.template import TemplateSyntaxError
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client
from django.urls import path

from django_redis_locks import LockError, current_grant, redis_lock
from tests.django.helpers import held_elsewhere

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
TEXT = b"This is being worked on by another request. Try again in a moment.\n"
PAGE = "<p>{{ status }} {{ detail }} {{ retry_after }} {{ request.path }}</p>"


def options_of(**options: Any) -> list[Any]:
    @redis_lock("patient:jane-doe", **options)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    @redis_lock("patient:jane-doe", **options)
    async def aview(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    return [view, aview]


# A decorator that tries a view again

tries: list[str] = []


def retried(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    @functools.wraps(view)
    def again(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except ConnectionError:
            tries.append("failed")
            with held_elsewhere("retried"):
                return view(request)

    return again


@retried
@redis_lock("retried")
def retried_view(request: HttpRequest) -> HttpResponse:
    raise ConnectionError


@retried
@redis_lock("outer of retried")
@redis_lock("retried")
def retried_stacked(request: HttpRequest) -> HttpResponse:
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


view, aview = options_of()


def key_of(request: HttpRequest) -> str:
    return f"keyed:{asks_helper(request)['helped']}"


@redis_lock(key=key_of)
def keyed(request: HttpRequest) -> HttpResponse:
    return HttpResponse(current_grant().key)  # type: ignore[union-attr]


urlpatterns = [
    path("keyed/", keyed),
    path("view/", view),
    path("async-view/", aview),
    path("locked/", options_of(status=423, retry_after=False)[0]),
    path("server-error/", options_of(status=503)[0]),
    path("cooling/", options_of(auto_release=False, expire=900)[0]),
    path("retried/", retried_view),
    path("retried-stacked/", retried_stacked),
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


def refused(url: str, accept: str = BROWSER, method: str = "get") -> Any:
    with held_elsewhere("patient:jane-doe", name="patient", expire=900):
        return getattr(Client(), method)(url, headers={"accept": accept})


class TestPages:
    @pytest.mark.parametrize("url", ["/view/", "/async-view/"])
    def test_browser_gets_the_page_of_the_project(self, url: str, pages: Any) -> None:
        """[D 2.4] With the request at hand, and neither key nor holder."""
        pages({"redis_locks/409.html": PAGE})
        response = refused(url)
        assert (response.status_code, response["Content-Type"]) == (409, "text/html; charset=utf-8")
        assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        assert response.content.decode() == f"<p>409 {TEXT.decode().strip()} 60 {url}</p>"
        known = repr([*response.context_data.values()])
        assert response.context_data.keys() == {"status", "detail", "retry_after"}
        for secret in ("patient", "jane", socket.gethostname(), str(os.getpid()), "Thread", "default"):
            assert secret not in known

    def test_page_under_asgi_is_rendered_in_a_thread(self, pages: Any) -> None:
        """Its context may ask the session and the database."""
        pages({"redis_locks/409.html": PAGE})

        async def ask() -> Any:
            return await AsyncClient().get("/async-view/", headers={"accept": BROWSER})

        with held_elsewhere("patient:jane-doe"):
            response = asyncio.run(ask())
        assert (response.status_code, response.content[:7]) == (409, b"<p>409 ")

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

    @pytest.mark.parametrize(
        ("url", "status", "retry_after"),
        [("/locked/", 423, [0]), ("/cooling/", 429, range(870, 901)), ("/server-error/", 503, [60])],
    )
    def test_template_of_the_status_is_used(
        self, url: str, status: int, retry_after: Sequence[int], pages: Any
    ) -> None:
        pages({"redis_locks/409.html": "no", f"redis_locks/{status}.html": "{{ status }} {{ retry_after }}"})
        response = refused(url)
        assert response.status_code == status
        assert response.content.decode() == f"{status} {response.get('Retry-After')}"
        assert int(response.get("Retry-After", 0)) in retry_after

    def test_store_that_is_down_has_the_page_503(self, pages: Any, store_down: str) -> None:
        pages({"redis_locks/503.html": PAGE})
        response = Client().get("/view/", headers={"accept": BROWSER})
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        assert response.content == b"<p>503 This is not available for the moment. Try again later. 5 /view/</p>"

    def test_project_without_the_template_sends_the_next_type(self, pages: Any, settings: Any) -> None:
        """Or without templates at all."""
        pages({})
        for _ in range(2):
            for accept in (BROWSER, "text/html"):
                assert refused("/view/", accept).content == TEXT
            assert json.loads(refused("/view/", "text/html, application/json;q=0.9").content)["status"] == 409
            settings.TEMPLATES = []

    def test_broken_template_raises(self, pages: Any) -> None:
        pages({"redis_locks/409.html": "{% nothing %}"})
        with pytest.raises(TemplateSyntaxError):
            refused("/view/")

    def test_HEAD_has_the_headers_and_no_body(self, pages: Any) -> None:
        pages({"redis_locks/409.html": PAGE})
        for accept in (BROWSER, "application/json", "text/plain"):
            response = refused("/view/", accept, "head")
            assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (409, "60", "no-store")
            assert response.content == b""


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.name, record.levelname) for record in caplog.records]


OURS = ("django_redis_locks.acquire", "INFO")


class TestLog:
    def test_conflict_is_no_warning(self, pages: Any, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] One line of ours at INFO; Django's WARNING of each 4xx isn't written. Under WSGI and ASGI, with a page
        and without one."""

        async def ask(url: str) -> None:
            await AsyncClient().get(url)

        def by_asgi(url: str) -> None:
            with held_elsewhere("patient:jane-doe"):
                asyncio.run(ask(url))

        for url, request in (*((url, refused) for url in ("/view/", "/async-view/", "/locked/")), ("/view/", by_asgi)):
            for templates in ({}, {"redis_locks/409.html": PAGE}):
                pages(templates)
                caplog.clear()
                with caplog.at_level(logging.INFO):
                    request(url)
                assert lines(caplog) == [OURS], url
        caplog.clear()
        with caplog.at_level(logging.INFO):
            by_asgi("/async-view/")
        assert lines(caplog) == [OURS]

    def test_status_from_500_on_is_logged_as_an_error(
        self, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
    ) -> None:
        """[D26] By Django; a store that is down by us, too."""
        with caplog.at_level(logging.INFO):
            refused("/server-error/")
            assert lines(caplog) == [OURS, ("django.request", "ERROR")]
            caplog.clear()
            request.getfixturevalue("store_down")
            Client().get("/view/")
        assert lines(caplog) == [("django_redis_locks.backend", "ERROR"), ("django.request", "ERROR")]

    def test_other_4xx_are_still_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] Also of a view that was refused first."""
        refused("/view/")
        caplog.clear()
        Client().get("/no-such-page/")
        Client().get("/not-found/")
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
    @pytest.mark.parametrize("url", ["/retried/", "/retried-stacked/"])
    def test_view_that_is_tried_again_and_busy_by_then_is_409(self, url: str) -> None:
        tries.clear()
        assert Client().get(url).status_code == 409
        assert tries == ["failed"]

    def test_helper_called_by_a_template_or_a_key_raises(self, pages: Any) -> None:
        """It is no view, although the view has returned."""
        pages({"helped.html": "{{ helped }}", "redis_locks/409.html": "{{ helped }}"})
        assert Client().get("/rendered/").content == b"served"
        with held_elsewhere("helper"):
            assert Client().get("/rendered/").content == b"refused"
            assert refused("/view/").content == b"refused"
            assert Client().get("/keyed/").content == b"keyed:refused"

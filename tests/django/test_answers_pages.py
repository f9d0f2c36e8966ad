"""Who is answered with a page; which line a refusal has in the log; and a view that is tried again."""

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
    def test_for_a_browser(self, url: str, pages: Any) -> None:
        """[D 2.4] Who prefers HTML gets the project's page, with the request at hand, and names of nobody."""
        pages({"redis_locks/409.html": PAGE})
        response = refused(url)
        assert (response.status_code, response["Content-Type"]) == (409, "text/html; charset=utf-8")
        assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        assert response.content.decode() == f"<p>409 {TEXT.decode().strip()} 60 {url}</p>"
        known = repr([*response.context_data.values()])
        assert response.context_data.keys() == {"status", "detail", "retry_after"}
        for secret in ("patient", "jane", socket.gethostname(), str(os.getpid()), "Thread", "default"):
            assert secret not in known

    def test_under_asgi(self, pages: Any) -> None:
        """There it is rendered in a thread, so that its context may ask the session and the database."""
        pages({"redis_locks/409.html": PAGE})

        async def ask() -> Any:
            return await AsyncClient().get("/async-view/", headers={"accept": BROWSER})

        with held_elsewhere("patient:jane-doe"):
            response = asyncio.run(ask())
        assert (response.status_code, response.content[:7]) == (409, b"<p>409 ")

    @pytest.mark.parametrize(
        ("accept", "kind"),
        [
            ("text/html", "text/html"),
            ("text/html;q=0.9, */*;q=0.8", "text/html"),
            ("application/json, text/html;q=0.9", "application/problem+json"),
            ("text/plain, text/html;q=0.9", "text/plain"),
            ("*/*", "text/plain"),
            ("image/png", "text/plain"),
            ("", "text/plain"),
        ],
    )
    def test_who_gets_it(self, accept: str, kind: str, pages: Any) -> None:
        """Only who prefers it; curl and clients of an API don't."""
        pages({"redis_locks/409.html": PAGE})
        assert refused("/view/", accept)["Content-Type"].startswith(kind)

    @pytest.mark.parametrize(
        ("url", "status", "retry_after"),
        [("/locked/", 423, [0]), ("/cooling/", 429, range(870, 901)), ("/server-error/", 503, [60])],
    )
    def test_its_name_is_the_status(self, url: str, status: int, retry_after: Sequence[int], pages: Any) -> None:
        """One template for each status that the project has."""
        pages({"redis_locks/409.html": "no", f"redis_locks/{status}.html": "{{ status }} {{ retry_after }}"})
        response = refused(url)
        assert response.status_code == status
        assert response.content.decode() == f"{status} {response.get('Retry-After')}"
        assert int(response.get("Retry-After", 0)) in retry_after

    def test_the_store_is_down(self, pages: Any, store_down: str) -> None:
        """503 may have one too."""
        pages({"redis_locks/503.html": PAGE})
        response = Client().get("/view/", headers={"accept": BROWSER})
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        assert response.content == b"<p>503 This is not available for the moment. Try again later. 5 /view/</p>"

    @pytest.mark.parametrize("accept", [BROWSER, "text/html"])
    def test_without_a_template(self, accept: str, pages: Any, settings: Any) -> None:
        """A project without one, or without templates at all, sends the text."""
        pages({})
        assert refused("/view/", accept).content == TEXT
        settings.TEMPLATES = []
        assert refused("/view/", accept).content == TEXT

    def test_without_a_template_and_json_is_next(self, pages: Any) -> None:
        """The next best thing that the client accepts is taken."""
        pages({})
        response = refused("/view/", "text/html, application/json;q=0.9")
        assert json.loads(response.content)["status"] == 409

    def test_a_broken_template(self, pages: Any) -> None:
        """A mistake in it is seen as such."""
        pages({"redis_locks/409.html": "{% nothing %}"})
        with pytest.raises(TemplateSyntaxError):
            refused("/view/")

    @pytest.mark.parametrize("accept", [BROWSER, "application/json", "text/plain"])
    def test_head(self, accept: str, pages: Any) -> None:
        """HEAD has the headers and no body."""
        pages({"redis_locks/409.html": PAGE})
        response = refused("/view/", accept, "head")
        assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (409, "60", "no-store")
        assert response.content == b""


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.name, record.levelname) for record in caplog.records]


OURS = ("django_redis_locks.acquire", "INFO")


class TestLog:
    @pytest.mark.parametrize("url", ["/view/", "/async-view/", "/locked/"])
    def test_a_conflict_is_no_warning(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] A busy lock is one line of ours at INFO; Django's WARNING of each 4xx isn't written."""
        with caplog.at_level(logging.INFO):
            refused(url)
        assert lines(caplog) == [OURS]

    @pytest.mark.parametrize("url", ["/view/", "/async-view/"])
    def test_under_asgi(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] Nor under ASGI."""

        async def ask() -> None:
            await AsyncClient().get(url)

        with caplog.at_level(logging.INFO), held_elsewhere("patient:jane-doe"):
            asyncio.run(ask())
        assert lines(caplog) == [OURS]

    def test_a_page(self, pages: Any, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] Nor for a page."""
        pages({"redis_locks/409.html": PAGE})
        with caplog.at_level(logging.INFO):
            refused("/view/")
        assert lines(caplog) == [OURS]

    def test_a_server_error_is_one(self, caplog: pytest.LogCaptureFixture) -> None:
        """A status from 500 on was chosen as an error, and is logged as one."""
        with caplog.at_level(logging.INFO):
            refused("/server-error/")
        assert lines(caplog) == [OURS, ("django.request", "ERROR")]

    def test_the_store_is_down(self, store_down: str, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] So is a store that is down: by us, and by Django."""
        with caplog.at_level(logging.INFO):
            Client().get("/view/")
        assert lines(caplog) == [("django_redis_locks.backend", "ERROR"), ("django.request", "ERROR")]

    def test_others_are_as_they_were(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] Every other 4xx is still warned of, also of a view that was refused first."""
        refused("/view/")
        caplog.clear()
        Client().get("/no-such-page/")
        Client().get("/not-found/")
        assert [line for line in lines(caplog) if line[0] == "django.request"] == [("django.request", "WARNING")] * 2

    def test_the_filter_is_there_once(self) -> None:
        """However often it happens, and whatever was configured meanwhile."""
        before = len(logging.getLogger("django.request").filters)
        for _ in range(3):
            refused("/view/")
        assert len(logging.getLogger("django.request").filters) in (before, before + 1)
        logging.getLogger("django.request").filters.clear()
        refused("/view/")
        assert len(logging.getLogger("django.request").filters) == 1


class TestTriedAgain:
    @pytest.mark.parametrize("url", ["/retried/", "/retried-stacked/"])
    def test_the_second_try_is_refused(self, url: str) -> None:
        """A decorator tries the view again, and somebody else has the lock by then: that is 409, too."""
        tries.clear()
        assert Client().get(url).status_code == 409
        assert tries == ["failed"]

    def test_what_comes_after_the_view(self, pages: Any) -> None:
        """A helper that is called when the view has returned, as templates do, is no view for that."""
        pages({"helped.html": "{{ helped }}"})
        assert Client().get("/rendered/").content == b"served"
        with held_elsewhere("helper"):
            assert Client().get("/rendered/").content == b"refused"

    def test_what_comes_after_a_refusal(self, pages: Any) -> None:
        """Nor for the page of a refused request, which has no body that ran."""
        pages({"redis_locks/409.html": "{{ helped }}"})
        with held_elsewhere("helper"):
            assert refused("/view/").content == b"refused"

    def test_what_makes_the_key(self) -> None:
        """Nor for a helper that the view's key is made by."""
        with held_elsewhere("helper"):
            assert Client().get("/keyed/").content == b"keyed:refused"

"""`cached_page` and answers that aren't stored: other requests don't wait for them one after the other."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from tests.cache.backends import DUMMY
from tests.cache.site import Site, ask, get, is_waiting, text
from tests.django.helpers import PATIENCE


def with_cookie(_: HttpRequest, number: int) -> HttpResponse:
    response = HttpResponse(f"page {number}", headers={"Vary": "Cookie"})
    response.set_cookie("a", "b")
    return response


def fails(_: HttpRequest, number: int) -> HttpResponse:
    raise ZeroDivisionError


ANSWERS = {
    "streaming": lambda _, number: StreamingHttpResponse([f"page {number}"]),
    "cookie": with_cookie,
    "exception": fails,
    "500": lambda _, number: HttpResponse(status=500),
    "404": lambda _, number: HttpResponse(status=404),
    "private": lambda _, number: HttpResponse(headers={"Cache-Control": "private"}),
    "no-store": lambda _, number: HttpResponse(headers={"Cache-Control": "no-store"}),
    "vary": lambda _, number: HttpResponse(headers={"Vary": "*"}),
}


def rendered_together(answer: Any, path: str, others: int) -> Site:
    """A request that renders, and others that wait for it; they go on together, as one by one they would never meet."""
    together = threading.Barrier(others + 1)

    def meets(request: HttpRequest, number: int) -> Any:
        if number > 1:
            together.wait(PATIENCE)
        return answer(request, number)

    site = Site(meets, closed=True)
    view = site.view()
    found = [ask(view, get(path))]
    site.has_begun()
    found += [ask(view, get(path)) for _ in range(others)]
    assert is_waiting(found[1])
    site.go.set()
    found[0].exception(PATIENCE)
    found.append(ask(view, get(path)))
    for each in found:
        each.exception(PATIENCE)
    return site


def test_answer_that_is_not_stored_is_not_waited_for(pages: None) -> None:
    """[S40] Requests that waited for the first one go on at once, together, and so do the next."""
    for name, answer in ANSWERS.items():
        assert rendered_together(answer, f"/{name}/", 3).rendered == 5, name


class Full(LocMemCache):
    """As memcached with a page that is too big: it isn't there, and no error says so."""

    def set(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("backend", [DUMMY, f"{__name__}.Full"])
def test_cache_that_keeps_nothing_is_not_waited_for(settings: Any, backend: str) -> None:
    """[S40] Even if it doesn't say so."""
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "keeps nothing"}}
    assert rendered_together(lambda _, number: HttpResponse("page"), "/", 3).rendered == 5


def test_page_that_the_cache_refuses_raises_for_each_request(pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """None waits for the one before."""
    monkeypatch.setattr(type(caches["default"]), "set", Mock(side_effect=OSError("no such disk")))
    view = Site().view()
    begin = monotonic()
    for _ in range(2):
        with pytest.raises(OSError, match="no such disk"):
            view(get())
    assert monotonic() - begin < 8


def test_page_without_a_timeout_is_not_waited_for(pages: None) -> None:
    """[S47]"""
    for timeout in (0, -5):
        site = Site()
        view = site.view(timeout=timeout, stale=60)
        assert site.both_render(view), timeout
        assert text(view(get())) == "page 3", timeout


def test_not_modified_does_not_mean_that_others_need_not_wait(pages: None) -> None:
    """[S40] It answers a client that has the page already; the next request renders it, and is waited for."""
    site = Site(
        lambda request, number: HttpResponse(status=304) if "If-None-Match" in request.headers else HttpResponse("page")
    )
    view = site.view()
    view(get(if_none_match='"x"'))
    assert site.at_once(view) == ["page"] * 3
    assert site.rendered == 2

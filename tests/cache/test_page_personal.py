"""`cached_page` and requests with cookies: for which requests a page is."""

from __future__ import annotations

from typing import Any

import redis
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from tests.cache.site import Site, ask, get, is_waiting, text


def by_cookie(request: HttpRequest, number: int) -> HttpResponse:
    response = HttpResponse(f"{request.COOKIES.get('who')} {number}")
    patch_vary_headers(response, ["Cookie"])
    return response


def test_personal_requests_do_not_wait_while_it_is_unknown_what_a_page_varies_on(redis_cache: None) -> None:
    """[S42]"""
    for header in ("Cookie", "Authorization"):
        site = Site(closed=True)
        view = site.view(key_prefix=header)
        found = [ask(view, get(**{header: "a=b"})) for _ in range(2)]
        site.has_begun(2)
        site.go.set()
        assert sorted(map(text, found)) == ["page 1", "page 2"]


def test_personal_requests_wait_with_personal(redis_cache: None) -> None:
    """[S42] As all do once it is known what the page varies on."""
    site = Site(closed=True)
    view = site.view(personal=True)
    found = [ask(view, get(cookie="a=b")) for _ in range(3)]
    site.has_begun()
    assert is_waiting(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page 1"] * 3


def test_request_that_waited_gets_the_page_of_its_own_cookie(pages: None) -> None:
    """[S42] It looks up its own, whatever the leader's was."""
    site = Site(by_cookie, closed=True)
    view = site.view(personal=True)
    found = {who: ask(view, get(cookie=f"who={who}")) for who in ("a", "b", "c")}
    site.has_begun()
    site.go.set()
    assert {who: text(page)[0] for who, page in found.items()} == {"a": "a", "b": "b", "c": "c"}
    assert site.rendered == 3
    assert [text(view(get(cookie=f"who={who}")))[0] for who in "abc"] == ["a", "b", "c"]
    assert site.rendered == 3


def test_headers_that_a_page_varies_on_are_known_for_longer_than_the_page(
    redis_cache: None, direct: redis.Redis
) -> None:
    """[S42] Else at each end of the page requests with cookies wouldn't wait."""
    site = Site(by_cookie)
    view: Any = site.view()
    view(get(cookie="who=a"))
    (key,) = direct.keys("*cache_page*")
    caches["default"].delete(key.decode().removeprefix(":1:"))
    site.go.clear()
    found = [ask(view, get(cookie="who=a")) for _ in range(3)]
    site.has_begun(2)  # the very first one, too
    assert is_waiting(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["a 2"] * 3

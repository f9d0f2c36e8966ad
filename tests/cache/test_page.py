"""`cached_page`: Django's `cache_page`, with one request to render each page; old pages, pages by cookie, answers that aren't
stored, and kinds of views."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import Mock

import pytest
import redis
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.utils.cache import get_max_age, patch_vary_headers
from django.utils.decorators import method_decorator
from django.utils.http import parse_http_date
from django.views import View
from django.views.decorators.cache import cache_page
from rest_framework.response import Response
from rest_framework.views import APIView

from django_redis_locks.cache import cached_page
from tests.cache.backends import DUMMY, FILES, HERE, LOCMEM, THERE
from tests.cache.site import Boom, Site, ask, get, happens, is_waiting, template_response, text, waiting
from tests.contract.matrix import eventually
from tests.django.helpers import PATIENCE, in_thread
from tests.probes.cache import waiters_in_store


def test_concurrent_requests_render_one_page(pages: None) -> None:
    """[S41] The others go on when both of Django's keys are there, and find it."""
    site = Site(lambda _, number: HttpResponse(f"page {number}", headers={"Vary": "Accept-Encoding"}))
    view = site.view()
    assert site.at_once(view, 8) == ["page 1"] * 8
    assert text(view(get())) == "page 1"
    assert site.rendered == 1


def test_two_processes_render_one_page(redis_pair: str) -> None:
    """[S41]"""
    site = Site(closed=True)
    first = ask(site.view(cache=HERE))
    site.has_begun()
    second = ask(site.view(cache=THERE))
    eventually(lambda: waiters_in_store(THERE))
    site.go.set()
    assert text(first) == text(second) == "page 1"
    assert site.rendered == 1


def test_requests_of_other_addresses_methods_or_prefixes_do_not_wait(redis_cache: None, settings: Any) -> None:
    """[S41]"""
    settings.ALLOWED_HOSTS = ["*"]
    site = Site(closed=True)
    view, prefixed = site.view(), site.view(key_prefix="other")
    first = ask(view)
    site.has_begun()
    ask(view, get("/page/?q=1"))
    ask(view, get(method="HEAD"))
    ask(view, RequestFactory().get("/page/", headers={"Host": "other.example"}))
    ask(prefixed)
    site.has_begun(4)
    again = ask(view)
    assert is_waiting(again)
    site.go.set()
    assert text(again) == text(first) == "page 1"
    assert site.rendered == 5


def test_head_takes_the_page_of_get_and_post_is_rendered(pages: None) -> None:
    view = Site().view()
    requests = ["GET", "HEAD", "POST", "POST"]
    assert [text(view(get(method=method))) for method in requests] == ["page 1", "page 1", "page 2", "page 3"]
    assert text(view(get("/other/", "HEAD"))) == "page 4"
    assert text(view(get("/other/"))) == "page 5"


def test_request_whose_wait_is_over_renders(pages: None) -> None:
    """[S12]"""
    site = Site()
    assert site.both_render(site.view(wait=0.05))


def test_page_is_stored_before_the_headers_it_varies_on(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S41] Between the two a request would find no page, and its renderer has begun under another key."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM, "LOCATION": "order"}}
    store, stored = LocMemCache.set, []

    def set_(cache: Any, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        stored.append(type(value))
        store(cache, key, value, *args, **kwargs)

    monkeypatch.setattr(LocMemCache, "set", set_)
    assert text(Site().view()(get())) == "page 1"
    assert stored == [HttpResponse, list]


def test_page_is_shared_with_djangos_cache_page(redis_cache: None, direct: redis.Redis) -> None:
    """And no lease is left."""
    site = Site()
    ours, theirs = site.view(key_prefix="p", cache="other"), cache_page(300, key_prefix="p", cache="other")(site)
    assert text(ours(get("/a/"))) == text(theirs(get("/a/"))) == "page 1"
    assert text(theirs(get("/b/"))) == text(ours(get("/b/"))) == "page 2"
    assert get_max_age(ours(get("/a/"))) == 300
    assert 0 <= int(ours(get("/a/"))["Age"]) < 10
    eventually(lambda: direct.dbsize() == 4)


def test_page_that_was_cleared_during_its_rendering_is_not_stored(pages: None, settings: Any) -> None:
    """[S1] [S31] It is older than that."""
    wrapper = {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "default"}
    settings.CACHES = {**settings.CACHES, "wrapped": wrapper}
    site = Site()
    view = site.view(cache="wrapped")
    for number in (1, 3):
        site.go.clear()
        first = ask(view)
        site.has_begun()
        caches["wrapped"].clear()
        site.go.set()
        assert text(first) == f"page {number}"
        assert text(view(get())) == text(view(get())) == f"page {number + 1}"
        site.has_begun()
        caches["wrapped"].clear()


def test_each_process_renders_once_without_the_store_of_leases(settings: Any, tmp_path: Path) -> None:
    """[S45] A cache of files, whose locks can't be reached."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}}
    settings.CACHES = {"default": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    site = Site()
    assert text(site.view(wait=0.5)(get("/first/"))) == "page 1"  # and it is known that they can't
    assert site.at_once(site.view(), 4) == ["page 2"] * 4


# By cookie


def by_cookie(request: HttpRequest, number: int) -> HttpResponse:
    response = HttpResponse(f"{request.COOKIES.get('who')} {number}")
    patch_vary_headers(response, ["Cookie"])
    return response


def test_requests_with_cookies_wait_by_option_or_once_the_varying_headers_are_known(
    redis_cache: None, direct: redis.Redis
) -> None:
    """[S42] What it varies on is known for longer than the page is kept."""
    for header in ("Cookie", "Authorization"):
        site = Site()
        assert site.both_render(site.view(key_prefix=header), **{header: "a=b"})
        assert (
            site.at_once(site.view(key_prefix=f"{header}2", wait_with_cookies=True), **{header: "a=b"})
            == ["page 3"] * 3
        )
    direct.flushdb()
    site = Site(by_cookie)
    view: Any = site.view()
    view(get(cookie="who=a"))
    (key,) = direct.keys("*cache_page*")
    caches["default"].delete(key.decode().removeprefix(":1:"))
    assert site.at_once(view, cookie="who=a") == ["a 2"] * 3


def test_request_that_waited_gets_the_page_of_its_own_cookie(pages: None) -> None:
    """[S42] It looks up its own, whatever the leader's was."""
    site = Site(by_cookie, closed=True)
    view = site.view(wait_with_cookies=True)
    found = {who: ask(view, get(cookie=f"who={who}")) for who in ("a", "b", "c")}
    site.has_begun()
    site.go.set()
    assert {who: text(page)[0] for who, page in found.items()} == {"a": "a", "b": "b", "c": "c"}
    assert [text(view(get(cookie=f"who={who}")))[0] for who in "abc"] == ["a", "b", "c"]
    assert site.rendered == 3


# With `stale`


def test_old_page_is_served_while_one_request_renders(pages: None, wall_clock: Callable[[float], None]) -> None:
    site = Site()
    view = site.view(stale=600)
    view(get())
    wall_clock(301)
    site.go.clear()
    renders = ask(view)
    site.has_begun(2)
    assert [text(in_thread(lambda: view(get()))) for _ in range(3)] == ["page 1"] * 3
    site.go.set()
    assert text(renders) == text(view(get())) == "page 2"


def test_old_page_is_kept_for_stale_beyond_its_timeout(redis_cache: None, direct: redis.Redis) -> None:
    def left(word: str, stale: int) -> float:
        (key,) = (key for key in direct.keys(f"*{word}*") if f".{stale}.".encode() in key)
        return direct.pttl(key) / 1000

    for stale in (0, 600):
        Site().view(stale=stale, key_prefix=str(stale))(get())
        assert 290 + stale < left("cache_page", stale) <= 300 + stale
        assert left("cache_header", stale) > left("cache_page", stale) + 3600  # [S42] what it varies on


def test_failure_leaves_the_old_page(pages: None, wall_clock: Callable[[float], None]) -> None:
    """One request tries, and the next one again; no other one sees it."""
    site = Site()
    view = site.view(stale=600)
    view(get())
    wall_clock(301)

    def fails(_: HttpRequest, number: int) -> HttpResponse:
        raise ZeroDivisionError

    site.answer = fails
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            view(get())
    site.answer = lambda _, number: HttpResponse(f"page {number}")
    assert text(view(get())) == "page 4"


def test_pages_end_at_different_times_and_none_is_older_than_it_says(
    redis_cache: None, wall_clock: Callable[[float], None]
) -> None:
    """[S33] Pages that are rendered together don't end together."""
    site = Site()
    view = site.view(stale=600)
    for number in range(20):
        page = view(get(f"/{number}/"))
        assert get_max_age(page) == 300
        assert abs(parse_http_date(page["Expires"]) - time.time() - 300) < 20

    def rendered_after(seconds: float) -> int:
        wall_clock(seconds)
        for number in range(20):
            view(get(f"/{number}/"))
        return site.rendered

    assert rendered_after(0) == rendered_after(255) == 20
    assert 20 < rendered_after(285) < 40
    assert rendered_after(301) >= 40


# Answers that aren't stored: other requests don't wait for them one after the other


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


# Kinds of views: templates, classes, the REST framework, asynchronous ones, and what isn't a view


def test_template_is_rendered_before_others_go_on(pages: None) -> None:
    """Django renders it, above the decorator; the others wait for that."""
    site = Site(template_response)
    view = site.view()
    first = view(get())
    assert not first.is_rendered
    found = ask(view)
    assert is_waiting(found)
    assert text(first.render()) == "page 1"
    assert text(found) == text(view(get())) == "page 1"
    assert site.rendered == 1


def test_template_that_fails_is_not_waited_for(pages: None) -> None:
    view = Site(template_response).view()
    first = view(get())
    first.context_data["boom"] = Boom()
    found = ask(view)
    assert is_waiting(found)
    with pytest.raises(ZeroDivisionError):
        first.render()
    assert text(found.result(PATIENCE).render()) == "page 2"


def test_template_that_is_never_rendered_frees_the_lease(pages: None) -> None:
    """A decorator outside answers something else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # clients of Django's caches that other tests' threads left
    view = Site(template_response).view()
    view(get())
    gc.collect()
    begin = monotonic()
    assert text(view(get()).render()) == "page 2"
    assert monotonic() - begin < 8


def test_view_of_the_rest_framework_is_cached_when_it_is_rendered(redis_cache: None) -> None:
    """How its answers are rendered is known when they have left the view."""
    rendered: list[int] = []

    class Orders(APIView):
        @method_decorator(cached_page(300))
        def get(self, request: Any) -> Response:
            rendered.append(1)
            return Response({"orders": len(rendered)})

    view = Orders.as_view()
    assert text(view(get()).render()) == text(view(get()).render()) == '{"orders":1}'
    assert rendered == [1]


def test_wrong_option_or_target_raises(redis_cache: None) -> None:
    for options in ({"stale": -1}, {"wait": -5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            cached_page(300, **options)(Site())

    class Shop(View):
        @cached_page(300)
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    with pytest.raises(TypeError, match="method_decorator"):
        Shop.as_view()(get())

    async def answers(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def dispatches(request: HttpRequest) -> Any:
        return answers(request)

    with pytest.raises(TypeError, match="decorate the async handler"):
        cached_page(300, key_prefix="mistakes")(dispatches)(get())


def test_cancelled_request_is_not_waited_for(pages: None) -> None:
    """[S21] The client of the request that renders hangs up: the next one renders."""
    site = Site(closed=True)
    view = site.aview()

    async def story() -> str:
        first = asyncio.create_task(view(get()))
        await happens(lambda: site.rendered)
        second = asyncio.create_task(view(get()))
        await happens(waiting)
        third = asyncio.create_task(view(get()))
        await asyncio.sleep(0)
        third.cancel()
        first.cancel()
        site.go.set()
        return text(await asyncio.wait_for(second, PATIENCE))

    assert asyncio.run(story()) == "page 2"


def test_template_of_an_asynchronous_view_is_rendered_before_others_go_on(pages: None) -> None:
    """Django renders it in a thread, where the lease ends."""
    view = Site(template_response).aview()

    async def story() -> list[str]:
        first = await view(get())
        second = asyncio.create_task(view(get()))
        await happens(lambda: waiting() or second.done())
        assert not second.done()
        await asyncio.to_thread(first.render)
        return [text(first), text(await asyncio.wait_for(second, PATIENCE))]

    assert asyncio.run(story()) == ["page 1"] * 2

"""`cached_page`, Django's `cache_page` with one render per page: concurrent requests, stale pages, cookies, responses
that aren't stored, and kinds of views."""

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
from tests.cache.page_requests import (
    CountingView,
    FailingVariable,
    aeventually,
    any_request_waits,
    body_of,
    get,
    request_in_thread,
    template_response,
    waits_for_another,
)
from tests.contract.matrix import eventually
from tests.django.helpers import PATIENCE, in_thread
from tests.probes.cache import waiters_in_store


def test_concurrent_requests_render_one_page(pages: None) -> None:
    """[S41] The others wait until both of Django's keys are stored."""
    site = CountingView(lambda _, number: HttpResponse(f"page {number}", headers={"Vary": "Accept-Encoding"}))
    view = site.view()
    assert site.bodies_of_concurrent(view, 8) == ["page 1"] * 8
    assert body_of(view(get())) == "page 1"
    assert site.rendered == 1


def test_two_processes_render_one_page(redis_pair: str) -> None:
    """[S41]"""
    site = CountingView(closed=True)
    first = request_in_thread(site.view(cache=HERE))
    site.wait_until_begun()
    second = request_in_thread(site.view(cache=THERE))
    eventually(lambda: waiters_in_store(THERE))
    site.gate.set()
    assert body_of(first) == body_of(second) == "page 1"
    assert site.rendered == 1


def test_requests_of_other_addresses_methods_or_prefixes_do_not_wait(redis_cache: None, settings: Any) -> None:
    """[S41]"""
    settings.ALLOWED_HOSTS = ["*"]
    site = CountingView(closed=True)
    view, prefixed = site.view(), site.view(key_prefix="other")
    first = request_in_thread(view)
    site.wait_until_begun()
    request_in_thread(view, get("/page/?q=1"))
    request_in_thread(view, get(method="HEAD"))
    request_in_thread(view, RequestFactory().get("/page/", headers={"Host": "other.example"}))
    request_in_thread(prefixed)
    site.wait_until_begun(4)
    again = request_in_thread(view)
    assert waits_for_another(again)
    site.gate.set()
    assert body_of(again) == body_of(first) == "page 1"
    assert site.rendered == 5


def test_head_uses_the_page_of_get_and_post_is_rendered(pages: None) -> None:
    view = CountingView().view()
    requests = ["GET", "HEAD", "POST", "POST"]
    assert [body_of(view(get(method=method))) for method in requests] == ["page 1", "page 1", "page 2", "page 3"]
    assert body_of(view(get("/other/", "HEAD"))) == "page 4"
    assert body_of(view(get("/other/"))) == "page 5"


def test_request_renders_at_the_end_of_its_wait(pages: None) -> None:
    """[S12]"""
    site = CountingView()
    assert site.both_render(site.view(wait=0.05))


def test_page_is_stored_before_its_vary_headers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S41] In the opposite order a request in between would find no page and render it again."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM, "LOCATION": "order"}}
    store, stored = LocMemCache.set, []

    def set_(cache: Any, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        stored.append(type(value))
        store(cache, key, value, *args, **kwargs)

    monkeypatch.setattr(LocMemCache, "set", set_)
    assert body_of(CountingView().view()(get())) == "page 1"
    assert stored == [HttpResponse, list]


def test_page_is_shared_with_djangos_cache_page(redis_cache: None, redis_client: redis.Redis) -> None:
    """No lease remains."""
    site = CountingView()
    ours, theirs = site.view(key_prefix="p", cache="other"), cache_page(300, key_prefix="p", cache="other")(site)
    assert body_of(ours(get("/a/"))) == body_of(theirs(get("/a/"))) == "page 1"
    assert body_of(theirs(get("/b/"))) == body_of(ours(get("/b/"))) == "page 2"
    assert get_max_age(ours(get("/a/"))) == 300
    assert 0 <= int(ours(get("/a/"))["Age"]) < 10
    eventually(lambda: redis_client.dbsize() == 4)


def test_page_is_not_stored_after_a_clear_during_its_rendering(pages: None, settings: Any) -> None:
    """[S1] [S31] It may be older than the clear."""
    wrapper = {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "default"}
    settings.CACHES = {**settings.CACHES, "wrapped": wrapper}
    site = CountingView()
    view = site.view(cache="wrapped")
    for number in (1, 3):
        site.gate.clear()
        first = request_in_thread(view)
        site.wait_until_begun()
        caches["wrapped"].clear()
        site.gate.set()
        assert body_of(first) == f"page {number}"
        assert body_of(view(get())) == body_of(view(get())) == f"page {number + 1}"
        site.wait_until_begun()
        caches["wrapped"].clear()


def test_each_process_renders_once_while_the_store_of_leases_is_down(settings: Any, tmp_path: Path) -> None:
    """[S45] With a cache of files, and unreachable locks."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}}
    settings.CACHES = {"default": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    site = CountingView()
    assert body_of(site.view(wait=0.5)(get("/first/"))) == "page 1"  # now the locks are known to be unreachable
    assert site.bodies_of_concurrent(site.view(), 4) == ["page 2"] * 4


# By cookie


def by_cookie(request: HttpRequest, number: int) -> HttpResponse:
    response = HttpResponse(f"{request.COOKIES.get('who')} {number}")
    patch_vary_headers(response, ["Cookie"])
    return response


def test_requests_with_cookies_wait_by_option_or_once_the_vary_headers_are_known(
    redis_cache: None, redis_client: redis.Redis
) -> None:
    """[S42] The vary headers are kept for longer than the page."""
    for header in ("Cookie", "Authorization"):
        site = CountingView()
        assert site.both_render(site.view(key_prefix=header), **{header: "a=b"})
        assert (
            site.bodies_of_concurrent(site.view(key_prefix=f"{header}2", wait_with_cookies=True), **{header: "a=b"})
            == ["page 3"] * 3
        )
    redis_client.flushdb()
    site = CountingView(by_cookie)
    view: Any = site.view()
    view(get(cookie="who=a"))
    (key,) = redis_client.keys("*cache_page*")
    caches["default"].delete(key.decode().removeprefix(":1:"))
    assert site.bodies_of_concurrent(view, cookie="who=a") == ["a 2"] * 3


def test_request_that_waited_gets_the_page_of_its_own_cookie(pages: None) -> None:
    """[S42] After its wait it reads the page of its own cookie, not that of the request that rendered."""
    site = CountingView(by_cookie, closed=True)
    view = site.view(wait_with_cookies=True)
    found = {who: request_in_thread(view, get(cookie=f"who={who}")) for who in ("a", "b", "c")}
    site.wait_until_begun()
    site.gate.set()
    assert {who: body_of(page)[0] for who, page in found.items()} == {"a": "a", "b": "b", "c": "c"}
    assert [body_of(view(get(cookie=f"who={who}")))[0] for who in "abc"] == ["a", "b", "c"]
    assert site.rendered == 3


# With `stale`


def test_stale_page_is_served_while_one_request_renders(pages: None, wall_clock: Callable[[float], None]) -> None:
    site = CountingView()
    view = site.view(stale=600)
    view(get())
    wall_clock(301)
    site.gate.clear()
    renders = request_in_thread(view)
    site.wait_until_begun(2)
    assert [body_of(in_thread(lambda: view(get()))) for _ in range(3)] == ["page 1"] * 3
    site.gate.set()
    assert body_of(renders) == body_of(view(get())) == "page 2"


def test_page_is_kept_for_stale_beyond_its_timeout(redis_cache: None, redis_client: redis.Redis) -> None:
    def left(word: str, stale: int) -> float:
        (key,) = (key for key in redis_client.keys(f"*{word}*") if f".{stale}.".encode() in key)
        return redis_client.pttl(key) / 1000

    for stale in (0, 600):
        CountingView().view(stale=stale, key_prefix=str(stale))(get())
        assert 290 + stale < left("cache_page", stale) <= 300 + stale
        assert left("cache_header", stale) > left("cache_page", stale) + 3600  # [S42] the vary headers


def test_stale_page_is_served_after_a_failure(pages: None, wall_clock: Callable[[float], None]) -> None:
    """Only the request that renders raises; the next one renders again."""
    site = CountingView()
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
    assert body_of(view(get())) == "page 4"


def test_jitter_ends_pages_at_different_times_within_their_max_age(
    redis_cache: None, wall_clock: Callable[[float], None]
) -> None:
    """[S33] Pages that are rendered together don't expire together."""
    site = CountingView()
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


# Responses that aren't stored: waiting requests don't render one after the other


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


def view_of_concurrent_requests(answer: Any, path: str, others: int) -> CountingView:
    """One request renders while others wait for it; then all others must render concurrently. Return the view."""
    together = threading.Barrier(others + 1)

    def meets(request: HttpRequest, number: int) -> Any:
        if number > 1:
            together.wait(PATIENCE)
        return answer(request, number)

    site = CountingView(meets, closed=True)
    view = site.view()
    found = [request_in_thread(view, get(path))]
    site.wait_until_begun()
    found += [request_in_thread(view, get(path)) for _ in range(others)]
    assert waits_for_another(found[1])
    site.gate.set()
    found[0].exception(PATIENCE)
    found.append(request_in_thread(view, get(path)))
    for each in found:
        each.exception(PATIENCE)
    return site


def test_requests_do_not_wait_for_a_response_that_is_not_stored(pages: None) -> None:
    """[S40] Requests that waited for the first one render concurrently, and so do later ones."""
    for name, answer in ANSWERS.items():
        assert view_of_concurrent_requests(answer, f"/{name}/", 3).rendered == 5, name


class Full(LocMemCache):
    """Stores nothing and raises nothing, as memcached with a page that is too large."""

    def set(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("backend", [DUMMY, f"{__name__}.Full"])
def test_requests_do_not_wait_with_a_cache_that_stores_nothing(settings: Any, backend: str) -> None:
    """[S40] Even if it reports no error."""
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "keeps nothing"}}
    assert view_of_concurrent_requests(lambda _, number: HttpResponse("page"), "/", 3).rendered == 5


def test_page_that_the_cache_refuses_raises_for_each_concurrent_request(
    pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They don't wait for each other."""
    monkeypatch.setattr(type(caches["default"]), "set", Mock(side_effect=OSError("no such disk")))
    view = CountingView().view()
    begin = monotonic()
    for _ in range(2):
        with pytest.raises(OSError, match="no such disk"):
            view(get())
    assert monotonic() - begin < 8


def test_requests_do_not_wait_for_a_page_with_a_timeout_of_zero(pages: None) -> None:
    """[S47]"""
    for timeout in (0, -5):
        site = CountingView()
        view = site.view(timeout=timeout, stale=60)
        assert site.both_render(view), timeout
        assert body_of(view(get())) == "page 3", timeout


def test_not_modified_response_does_not_stop_later_requests_from_waiting(pages: None) -> None:
    """[S40] It is for a client that has the page; the next request renders it, and others wait for that."""
    site = CountingView(
        lambda request, number: HttpResponse(status=304) if "If-None-Match" in request.headers else HttpResponse("page")
    )
    view = site.view()
    view(get(if_none_match='"x"'))
    assert site.bodies_of_concurrent(view) == ["page"] * 3
    assert site.rendered == 2


# Kinds of views: templates, classes, Django REST framework, asynchronous views


def test_waiting_requests_get_the_rendered_template(pages: None) -> None:
    """Django renders a TemplateResponse after the decorated view has returned; waiting requests wait for that."""
    site = CountingView(template_response)
    view = site.view()
    first = view(get())
    assert not first.is_rendered
    found = request_in_thread(view)
    assert waits_for_another(found)
    assert body_of(first.render()) == "page 1"
    assert body_of(found) == body_of(view(get())) == "page 1"
    assert site.rendered == 1


def test_requests_do_not_wait_for_a_template_that_failed(pages: None) -> None:
    view = CountingView(template_response).view()
    first = view(get())
    first.context_data["boom"] = FailingVariable()
    found = request_in_thread(view)
    assert waits_for_another(found)
    with pytest.raises(ZeroDivisionError):
        first.render()
    assert body_of(found.result(PATIENCE).render()) == "page 2"


def test_lease_ends_when_a_template_is_never_rendered(pages: None) -> None:
    """As when an outer decorator returns another response."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # of connections that other tests' threads left open
    view = CountingView(template_response).view()
    view(get())
    gc.collect()
    begin = monotonic()
    assert body_of(view(get()).render()) == "page 2"
    assert monotonic() - begin < 8


def test_rest_framework_view_is_cached_when_its_response_is_rendered(redis_cache: None) -> None:
    """Its responses are rendered after the view has returned."""
    rendered: list[int] = []

    class Orders(APIView):
        @method_decorator(cached_page(300))
        def get(self, request: Any) -> Response:
            rendered.append(1)
            return Response({"orders": len(rendered)})

    view = Orders.as_view()
    assert body_of(view(get()).render()) == body_of(view(get()).render()) == '{"orders":1}'
    assert rendered == [1]


def test_wrong_option_or_target_raises(redis_cache: None) -> None:
    for options in ({"stale": -1}, {"wait": -5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            cached_page(300, **options)(CountingView())

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


def test_next_request_renders_when_the_rendering_one_is_cancelled(pages: None) -> None:
    """[S21] As when its client disconnects."""
    site = CountingView(closed=True)
    view = site.aview()

    async def scenario() -> str:
        first = asyncio.create_task(view(get()))
        await aeventually(lambda: site.rendered)
        second = asyncio.create_task(view(get()))
        await aeventually(any_request_waits)
        third = asyncio.create_task(view(get()))
        await asyncio.sleep(0)
        third.cancel()
        first.cancel()
        site.gate.set()
        return body_of(await asyncio.wait_for(second, PATIENCE))

    assert asyncio.run(scenario()) == "page 2"


def test_waiting_requests_get_the_rendered_template_of_an_async_view(pages: None) -> None:
    """Django renders it in another thread, where the lease ends."""
    view = CountingView(template_response).aview()

    async def scenario() -> list[str]:
        first = await view(get())
        second = asyncio.create_task(view(get()))
        await aeventually(lambda: any_request_waits() or second.done())
        assert not second.done()
        await asyncio.to_thread(first.render)
        return [body_of(first), body_of(await asyncio.wait_for(second, PATIENCE))]

    assert asyncio.run(scenario()) == ["page 1"] * 2

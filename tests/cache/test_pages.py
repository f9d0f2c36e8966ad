"""`cached_page`: Django's `cache_page`, with one request to render each page."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.utils.cache import get_max_age, patch_vary_headers
from django.utils.decorators import method_decorator
from django.utils.http import parse_http_date
from django.views import View
from django.views.decorators.cache import cache_page
from rest_framework.response import Response
from rest_framework.views import APIView

from django_redis_locks.cache import cached_page
from django_redis_locks.cache.visits import Visit
from django_redis_locks.core import clock
from tests.django.helpers import PATIENCE, in_thread, until

ROOT = Path(__file__).parent.parent.parent

Page = Callable[..., Any]


@pytest.fixture
def redis_pages(settings: Any, redis_url: str) -> str:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url},
        "other": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url, "KEY_PREFIX": "o"},
    }
    return redis_url


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`later(61)`: so many seconds have passed, for those who look whether a page is fresh."""
    real = clock.wall

    def pass_(seconds: float) -> None:
        monkeypatch.setattr(clock, "wall", lambda: real() + seconds)

    return pass_


class Site:
    """A view that counts, says that it began, and goes on when it may."""

    def __init__(self, answer: Callable[[HttpRequest, int], Any] | None = None) -> None:
        self.rendered = 0
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self._answer = answer or (lambda _, number: HttpResponse(f"page {number}"))
        self._mutex = threading.Lock()

    def __call__(self, request: HttpRequest) -> Any:
        with self._mutex:
            self.rendered += 1
            number = self.rendered
        self.began.release()
        assert self.go.wait(PATIENCE)
        return self._answer(request, number)

    def view(self, *, timeout: float | None = 300, wait: float = PATIENCE, **options: Any) -> Page:
        @cached_page(timeout, wait=wait, **options)
        def view(request: HttpRequest) -> Any:
            return self(request)

        return view

    def aview(self, wait: float = PATIENCE, **options: Any) -> Page:
        @cached_page(300, wait=wait, **options)
        async def aview(request: HttpRequest) -> Any:
            self.rendered += 1
            number = self.rendered
            self.began.release()
            await happens(self.go.is_set)
            return self._answer(request, number)

        return aview

    def has_begun(self) -> None:
        assert self.began.acquire(timeout=PATIENCE)


def get(path: str = "/page/", method: str = "GET", **headers: str) -> HttpRequest:
    return RequestFactory().generic(method, path, headers=headers)


def ask(view: Page, request: HttpRequest | None = None) -> Future[Any]:
    """A request in a thread of its own."""
    found: Future[Any] = Future()

    def work() -> None:
        try:
            found.set_result(view(request or get()))
        except BaseException as error:  # noqa: BLE001 - raised again where the test looks
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found


def text(response: Any) -> str:
    content = response.result(PATIENCE) if isinstance(response, Future) else response
    return str(content.content.decode())


async def happens(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(until, condition)


def waits(found: Future[Any]) -> bool:
    """Whether it is still under way after a while. That it is can't be waited for."""
    try:
        found.result(0.1)
    except TimeoutError:
        return True
    return False


# One renders


def test_many_requests_render_one_page(pages: None) -> None:
    """[S41] The others go on when both of Django's keys are there, and find it."""
    site = Site(lambda _, number: HttpResponse(f"page {number}", headers={"Vary": "Accept-Encoding"}))
    site.go.clear()
    view = site.view()
    found = [ask(view) for _ in range(8)]
    site.has_begun()
    assert waits(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page 1"] * 8
    assert text(view(get())) == "page 1"
    assert site.rendered == 1


def test_many_processes_render_one_page(redis_pages: str) -> None:
    """[S41] 4 processes with 5 requests each; the one who renders waits until all have come."""
    program = """
import sys, threading, time
import django
from django.conf import settings
url = sys.argv[1]
settings.configure(
    ALLOWED_HOSTS=["*"], USE_TZ=True,
    CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}},
    REDIS_LOCKS={"default": {"LOCATION": url}},
)
django.setup()
import redis
from django.http import HttpResponse
from django.test import RequestFactory
from django_redis_locks.cache import cached_page
counts = redis.Redis.from_url(url)
@cached_page(300, wait=120)
def view(request):
    counts.incr("rendered")
    while int(counts.get("came")) < 20:
        time.sleep(0.01)
    return HttpResponse("page")
def visit():
    counts.incr("came")
    assert view(RequestFactory().get("/page/")).content == b"page"
threads = [threading.Thread(target=visit) for _ in range(5)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    running = [
        subprocess.Popen([sys.executable, "-c", program, redis_pages], cwd=ROOT, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in running:
        assert process.communicate(timeout=6 * PATIENCE)[1] == b""
    assert caches["default"]._cache.get_client().get("rendered") == b"1"


def test_other_addresses_and_methods_do_not_wait(pages: None, settings: Any) -> None:
    """[S41] A turn is for a method, an absolute address and a prefix."""
    settings.ALLOWED_HOSTS = ["*"]
    site = Site()
    site.go.clear()
    view, prefixed = site.view(), site.view(key_prefix="other")
    first = ask(view)
    site.has_begun()
    others = [
        ask(view, get("/page/?q=1")),
        ask(view, get(method="HEAD")),
        ask(view, RequestFactory().get("/page/", headers={"Host": "other.example"})),
        ask(prefixed),
    ]
    for _ in others:
        site.has_begun()
    again = ask(view)
    assert waits(again)
    site.go.set()
    assert text(again) == text(first) == "page 1"
    assert site.rendered == 5


def test_a_form_is_not_a_page(pages: None) -> None:
    site = Site()
    view = site.view()
    assert [text(view(get(method="POST"))) for _ in range(2)] == ["page 1", "page 2"]


def test_a_head_request_takes_what_there_is(pages: None) -> None:
    site = Site()
    view = site.view()
    view(get())
    assert text(view(get(method="HEAD"))) == "page 1"
    assert text(view(get("/other/", "HEAD"))) == "page 2"
    assert text(view(get("/other/"))) == "page 3"


def test_whoever_has_waited_enough_renders(pages: None) -> None:
    """[S12] A page that takes too long isn't waited for for ever."""
    site = Site()
    site.go.clear()
    view = site.view(wait=0.2)
    first = ask(view)
    site.has_begun()
    second = ask(view)
    site.has_begun()
    site.go.set()
    assert {text(first), text(second)} == {"page 1", "page 2"}


def test_the_wait_begins_when_there_is_somebody_to_wait_for(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S22] Of a crowd of tasks each looks after the other one. What that takes is none of their wait."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "late"}}
    now, look, passed = clock.now, LocMemCache.get, 0.0
    site = Site()
    site.go.clear()
    view = site.view(wait=20)
    first = ask(view)
    site.has_begun()

    def look_for_long(*args: Any, **kwargs: Any) -> Any:
        nonlocal passed
        passed = 25.0
        return look(*args, **kwargs)

    monkeypatch.setattr(clock, "now", lambda: now() + passed)
    monkeypatch.setattr(LocMemCache, "get", look_for_long)
    second = ask(view)
    assert waits(second)
    site.go.set()
    assert (text(first), text(second)) == ("page 1", "page 1")


def test_a_page_is_there_before_it_is_known_by_which_headers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S41] Between the two another one would find no page, and whoever renders it has begun under another name."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "order"}}
    store, stored = LocMemCache.set, []

    def set_(cache: Any, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        stored.append(type(value))
        store(cache, key, value, *args, **kwargs)

    monkeypatch.setattr(LocMemCache, "set", set_)
    assert text(Site().view()(get())) == "page 1"
    assert stored == [HttpResponse, list]


def test_whoever_has_waited_enough_looks_once_more(pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S41] Somebody stored the page, and the news of it was lost."""
    site = Site()
    site.go.clear()
    view = site.view(wait=0.3)
    first = ask(view)
    site.has_begun()
    look = Visit._look

    def stored_just_before(visit: Visit) -> Any:
        if visit._waited_long():
            cache_page(300)(lambda request: HttpResponse("meanwhile"))(get())
        return look(visit)

    monkeypatch.setattr(Visit, "_look", stored_just_before)
    second = ask(view)
    assert text(second) == "meanwhile"
    site.go.set()
    assert text(first) == "page 1"
    assert site.rendered == 1


def test_pages_are_djangos(redis_pages: str) -> None:
    """What either has stored, the other one serves."""
    site = Site()
    ours, theirs = site.view(key_prefix="p", cache="other"), cache_page(300, key_prefix="p", cache="other")(site)
    assert text(ours(get("/a/"))) == text(theirs(get("/a/"))) == "page 1"
    assert text(theirs(get("/b/"))) == text(ours(get("/b/"))) == "page 2"
    assert get_max_age(ours(get("/a/"))) == 300
    assert 0 <= int(ours(get("/a/"))["Age"]) < 10
    assert caches["other"]._cache.get_client().dbsize() == 4


@pytest.mark.parametrize("timeout", [0, -5])
def test_a_page_that_is_not_kept_is_not_waited_for(pages: None, timeout: int) -> None:
    """[S47]"""
    site = Site()
    site.go.clear()
    view = site.view(timeout=timeout, stale=60)
    found = [ask(view), ask(view)]
    site.has_begun()
    site.has_begun()
    site.go.set()
    assert sorted(map(text, found)) == ["page 1", "page 2"]
    assert text(view(get())) == "page 3"


# Whom it is for


def test_personal_requests_do_not_wait_for_what_is_not_known(pages: None) -> None:
    """[S42] Before it is known whether the page depends on them; then they do."""
    for header in ("Cookie", "Authorization"):
        site = Site()
        site.go.clear()
        view = site.view(key_prefix=header)
        found = [ask(view, get(**{header: "a=b"})) for _ in range(2)]
        site.has_begun()
        site.has_begun()
        site.go.set()
        assert sorted(map(text, found)) == ["page 1", "page 2"]


def test_personal_requests_may_wait(pages: None) -> None:
    """[S42] With personal=True they do, and so do all once it is known what the page depends on."""
    site = Site()
    site.go.clear()
    view = site.view(personal=True)
    found = [ask(view, get(cookie="a=b")) for _ in range(3)]
    site.has_begun()
    assert waits(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page 1"] * 3


def _personal(request: HttpRequest, number: int) -> HttpResponse:
    response = HttpResponse(f"{request.COOKIES.get('who')} {number}")
    patch_vary_headers(response, ["Cookie"])
    return response


def test_nobody_gets_the_page_of_another_one(pages: None) -> None:
    """[S42] Who waited looks up his own, whatever the leader's was."""
    site = Site(_personal)
    site.go.clear()
    view = site.view(personal=True)
    found = {who: ask(view, get(cookie=f"who={who}")) for who in ("a", "b", "c")}
    site.has_begun()
    site.go.set()
    assert {who: text(page)[0] for who, page in found.items()} == {"a": "a", "b": "b", "c": "c"}
    assert site.rendered == 3
    assert [text(view(get(cookie=f"who={who}")))[0] for who in "abc"] == ["a", "b", "c"]
    assert site.rendered == 3


def test_what_a_page_depends_on_stays_known(pages: None) -> None:
    """[S42] Longer than the page: else every end of it would find requests with cookies that don't wait."""
    site = Site(_personal)
    view = site.view()
    view(get(cookie="who=a"))
    (key,) = _keys("cache_page")
    caches["default"].delete(key)
    site.go.clear()
    found = [ask(view, get(cookie="who=a")) for _ in range(3)]
    site.has_begun()
    site.has_begun()  # the very first one
    assert waits(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["a 2"] * 3


def _keys(word: str) -> list[str]:
    cache: Any = caches["default"]
    if hasattr(cache, "_cache") and hasattr(cache._cache, "get_client"):
        raw = [key.decode() for key in cache._cache.get_client().scan_iter(f"*{word}*")]
    else:
        raw = list(cache._cache)
    return [key.removeprefix(":1:") for key in raw if word in key and "turn" not in key]


# What may not be cached


def _streaming(_: HttpRequest, number: int) -> StreamingHttpResponse:
    return StreamingHttpResponse([f"page {number}"])


def _cookie(_: HttpRequest, number: int) -> HttpResponse:
    response = HttpResponse(f"page {number}", headers={"Vary": "Cookie"})
    response.set_cookie("a", "b")
    return response


def _fails(_: HttpRequest, number: int) -> HttpResponse:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "answer",
    [
        _streaming,
        _cookie,
        _fails,
        lambda _, number: HttpResponse(status=500),
        lambda _, number: HttpResponse(status=404),
        lambda _, number: HttpResponse(headers={"Cache-Control": "private"}),
        lambda _, number: HttpResponse(headers={"Cache-Control": "no-store"}),
        lambda _, number: HttpResponse(headers={"Vary": "*"}),
    ],
    ids=["streaming", "cookie", "exception", "500", "404", "private", "no-store", "vary"],
)
def test_nobody_waits_for_what_is_not_stored(pages: None, answer: Any) -> None:
    """[S40] Those who waited for the first one go at once, together, and so do the next."""
    together = threading.Barrier(4)

    def meets(request: HttpRequest, number: int) -> Any:
        if number > 1:
            together.wait(PATIENCE)  # one by one they would never meet
        return answer(request, number)

    site = Site(meets)
    site.go.clear()
    view = site.view()
    first = ask(view)
    site.has_begun()
    found = [ask(view) for _ in range(3)]
    assert waits(found[0])
    site.go.set()
    first.exception(PATIENCE)
    found.append(ask(view))
    for each in found:
        each.exception(PATIENCE)
    assert site.rendered == 5


def test_not_modified_says_nothing_of_the_others(pages: None) -> None:
    """[S40] Who has the page already is told so; the next one renders it, and is waited for."""
    site = Site(
        lambda request, number: HttpResponse(status=304) if "If-None-Match" in request.headers else HttpResponse("page")
    )
    view = site.view()
    view(get(if_none_match='"x"'))
    site.go.clear()
    found = [ask(view) for _ in range(3)]
    site.has_begun()
    site.has_begun()
    assert waits(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page"] * 3
    assert site.rendered == 2


class Full(LocMemCache):
    """As memcached with a page that is too big: it isn't there, and nobody says so."""

    def set(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("backend", ["django.core.cache.backends.dummy.DummyCache", f"{__name__}.Full"])
def test_nobody_waits_for_a_cache_that_keeps_nothing(settings: Any, backend: str) -> None:
    """[S40] Even if it doesn't say so."""
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "keeps nothing"}}
    together = threading.Barrier(3)

    def meets(_: HttpRequest, number: int) -> HttpResponse:
        if number > 1:
            together.wait(PATIENCE)
        return HttpResponse("page")

    site = Site(meets)
    site.go.clear()
    view = site.view()
    found = [ask(view)]
    site.has_begun()
    found += [ask(view) for _ in range(3)]
    assert waits(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page"] * 4


def test_a_page_is_not_stored_when_the_cache_was_cleared_meanwhile(pages: None, settings: Any) -> None:
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


# Old pages


def test_an_old_page_is_served_while_one_renders(pages: None, later: Callable[[float], None]) -> None:
    site = Site()
    view = site.view(stale=600)
    view(get())
    later(301)
    site.go.clear()
    renders = ask(view)
    site.has_begun()
    site.has_begun()
    assert [text(in_thread(lambda: view(get()))) for _ in range(3)] == ["page 1"] * 3
    site.go.set()
    assert text(renders) == text(view(get())) == "page 2"


def test_an_old_page_outlives_its_time_by_stale_only(redis_pages: str) -> None:
    site = Site()
    for stale in (0, 600):
        site.view(stale=stale, key_prefix=str(stale))(get())
        (key,) = [key for key in _keys("cache_page") if f".{stale}." in key]
        left = caches["default"]._cache.get_client().pttl(caches["default"].make_key(key)) / 1000
        assert 290 + stale < left <= 300 + stale
        (key,) = [key for key in _keys("cache_header") if f".{stale}." in key]
        known = caches["default"]._cache.get_client().pttl(caches["default"].make_key(key)) / 1000
        assert known > left + 3600  # [S42] what it depends on is known for longer


def test_a_failure_leaves_the_old_page(pages: None, later: Callable[[float], None]) -> None:
    """One request tries, and the next one again; nobody else sees it."""
    site = Site()
    view = site.view(stale=600)
    view(get())
    later(301)
    site._answer = _fails
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            view(get())
    site._answer = lambda _, number: HttpResponse(f"page {number}")
    assert text(view(get())) == "page 4"


def test_what_browsers_are_told_stays_true(pages: None, later: Callable[[float], None]) -> None:
    """[S33] Pages that are rendered together don't end together; none is older than it says."""
    site = Site()
    view = site.view(stale=600)
    for number in range(20):
        page = view(get(f"/{number}/"))
        assert get_max_age(page) == 300
        assert abs(parse_http_date(page["Expires"]) - clock.wall() - 300) < 20
    assert site.rendered == 20
    later(255)
    for number in range(20):
        view(get(f"/{number}/"))
    assert site.rendered == 20
    later(285)
    for number in range(20):
        view(get(f"/{number}/"))
    assert 20 < site.rendered < 40
    later(301)
    for number in range(20):
        view(get(f"/{number}/"))
    assert site.rendered >= 40


# Templates


def _template(request: HttpRequest, number: int) -> TemplateResponse:
    template = engines["django"].from_string("page {{ number }}{{ boom.now }}")
    return TemplateResponse(request, template, {"number": number})  # type: ignore[arg-type]


class Boom:
    @property
    def now(self) -> str:
        raise ZeroDivisionError


def test_a_template_is_rendered_first(pages: None) -> None:
    """Django renders it, above the decorator; the others wait for that."""
    site = Site(_template)
    view = site.view()
    first = view(get())
    assert not first.is_rendered
    found = ask(view)
    assert waits(found)
    assert text(first.render()) == "page 1"
    assert text(found) == text(view(get())) == "page 1"
    assert site.rendered == 1


def test_a_template_that_fails_is_not_waited_for(pages: None) -> None:
    site = Site(_template)
    view = site.view()
    first = view(get())
    first.context_data["boom"] = Boom()
    found = ask(view)
    assert waits(found)
    with pytest.raises(ZeroDivisionError):
        first.render()
    assert text(found.result(PATIENCE).render()) == "page 2"


def test_a_view_of_the_rest_framework(pages: None) -> None:
    """It says late how its answers are rendered: they are when they have left the view."""
    rendered: list[int] = []

    class Orders(APIView):
        @method_decorator(cached_page(300))
        def get(self, request: Any) -> Response:
            rendered.append(1)
            return Response({"orders": len(rendered)})

    view = Orders.as_view()
    assert text(view(get()).render()) == text(view(get()).render()) == '{"orders":1}'
    assert rendered == [1]


# Classes, and what isn't a view


def test_a_method_of_a_view(pages: None) -> None:
    class Shop(View):
        rendered = 0

        @method_decorator(cached_page(300))
        def get(self, request: HttpRequest) -> HttpResponse:
            Shop.rendered += 1
            return HttpResponse(f"page {Shop.rendered}")

    @method_decorator(cached_page(300), name="dispatch")
    class Decorated(Shop):
        pass

    for name, view in (("shop", Shop.as_view()), ("decorated", Decorated.as_view())):
        assert text(view(get(f"/{name}/"))) == text(view(get(f"/{name}/")))
    assert Shop.rendered == 2


def test_a_view_that_calls_itself_does_not_wait_for_itself(pages: None) -> None:
    """[S19]"""

    @cached_page(300, wait=30)
    def inner(request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    @cached_page(300, wait=30)
    def outer(request: HttpRequest) -> Any:
        return inner(request)

    begin = clock.now()
    assert text(outer(get())) == "page"
    assert clock.now() - begin < 8


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="stale"):
        cached_page(300, stale=-1)(Site())
    with pytest.raises(ValueError, match="wait"):
        cached_page(300, wait=-5)(Site())

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


# Coroutines


def test_many_tasks_render_one_page(pages: None) -> None:
    """[S22] They wait without a thread, and the loop goes on."""
    site = Site()
    site.go.clear()
    view = site.aview()

    async def story() -> list[Any]:
        tasks = [asyncio.create_task(view(get())) for _ in range(200)]
        await happens(lambda: site.rendered)
        await asyncio.sleep(0.05)
        site.go.set()
        return await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    assert {text(page) for page in asyncio.run(story())} == {"page 1"}
    assert site.rendered == 1


def test_a_cancelled_request_is_not_waited_for(pages: None) -> None:
    """[S21] The client of the one who renders hangs up: the next one renders."""
    site = Site()
    site.go.clear()
    view = site.aview()

    async def story() -> str:
        first = asyncio.create_task(view(get()))
        await happens(lambda: site.rendered)
        second = asyncio.create_task(view(get()))
        third = asyncio.create_task(view(get()))
        await asyncio.sleep(0.05)
        third.cancel()
        first.cancel()
        site.go.set()
        return text(await asyncio.wait_for(second, PATIENCE))

    assert asyncio.run(story()) == "page 2"


def test_an_asynchronous_view_and_its_template(pages: None) -> None:
    """Django renders it in a thread, where the turn ends."""
    site = Site(_template)
    view = site.aview()

    async def story() -> list[str]:
        first = await view(get())
        waiting = asyncio.create_task(view(get()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.to_thread(first.render)
        return [text(first), text(await asyncio.wait_for(waiting, PATIENCE))]

    assert asyncio.run(story()) == ["page 1"] * 2


def test_an_asynchronous_view_serves_old_pages(pages: None, later: Callable[[float], None]) -> None:
    site = Site()
    view = site.aview(stale=600)

    async def story() -> list[str]:
        await view(get())
        later(301)
        site.go.clear()
        renders = asyncio.create_task(view(get()))
        await happens(lambda: site.rendered == 2)
        old = text(await view(get()))
        site.go.set()
        return [old, text(await renders), text(await view(get()))]

    assert asyncio.run(story()) == ["page 1", "page 2", "page 2"]


def test_pages_without_their_store(settings: Any, tmp_path: Path) -> None:
    """[S45] A cache of files, whose locks can't be reached: one renders for each process."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}}
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)}
    }
    site = Site()
    view = site.view(wait=0.5)
    assert text(view(get("/first/"))) == "page 1"  # and it is known that they can't
    site.has_begun()
    site.go.clear()
    found = [ask(site.view(), get()) for _ in range(4)]
    site.has_begun()
    assert waits(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page 2"] * 4


def test_nothing_is_left(redis_pages: str) -> None:
    """Of a turn that is over only pages stay."""
    view = Site().view()
    view(get())
    until(lambda: len(caches["default"]._cache.get_client().keys("*")) == 2)
    assert not [key for key in caches["default"]._cache.get_client().keys("*") if re.search(b"turn", key)]

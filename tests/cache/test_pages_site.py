"""The middleware for a whole site, with one request to render each page."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client
from django.urls import path

from django_redis_locks.cache import cached_page
from django_redis_locks.core import clock
from tests.django.helpers import PATIENCE, until

UPDATE = "django_redis_locks.cache.middleware.StampedeUpdateMiddleware"
FETCH = "django_redis_locks.cache.middleware.StampedeFetchMiddleware"
BOTH = "django_redis_locks.cache.middleware.StampedeCacheMiddleware"
OTHER = "django.middleware.common.CommonMiddleware"


class SyncOnly:
    """As old middleware is: it makes Django change between threads and tasks."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)


class Late:
    """Looks at the context of templates before they are rendered."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)

    def process_template_response(self, request: HttpRequest, response: Any) -> Any:
        if not response.is_rendered:  # from the cache it is
            response.context_data["late"] = "late"
        return response


class Body:
    """What the views do."""

    def __init__(self) -> None:
        self.rendered = 0
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self.answer: Callable[[int], HttpResponse] = lambda number: HttpResponse(f"page {number}")

    def begin(self) -> int:
        self.rendered += 1
        self.began.release()
        return self.rendered

    def has_begun(self) -> None:
        assert self.began.acquire(timeout=PATIENCE)


body = Body()


def view(request: HttpRequest) -> Any:
    number = body.begin()
    assert body.go.wait(PATIENCE)
    return body.answer(number)


async def aview(request: HttpRequest) -> Any:
    number = body.begin()
    await asyncio.to_thread(body.go.wait, PATIENCE)
    return body.answer(number)


@cached_page(300, wait=30)
def decorated(request: HttpRequest) -> Any:
    return view(request)


@cached_page(300, wait=30)
def template(request: HttpRequest) -> Any:
    number = body.begin()
    text: Any = engines["django"].from_string("page {{ number }} {{ late }}")
    return TemplateResponse(request, text, {"number": number})


urlpatterns = [path("view/", view), path("aview/", aview), path("decorated/", decorated), path("template/", template)]

PAIR = [UPDATE, OTHER, FETCH]


@pytest.fixture(autouse=True)
def site(settings: Any, redis_url: str) -> Iterator[None]:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url}}
    settings.ROOT_URLCONF = sys.modules[__name__]
    settings.MIDDLEWARE = PAIR
    settings.CACHE_MIDDLEWARE_WAIT = PATIENCE
    body.__init__()  # type: ignore[misc]
    yield
    caches.close_all()


def ask(address: str, **headers: str) -> str:
    return str(Client(raise_request_exception=False).get(address, headers=headers).content.decode())


async def aask(address: str) -> str:
    response = await AsyncClient(raise_request_exception=False).get(address)
    return str(response.content.decode())


def at_once(call: Callable[[], str], number: int = 4) -> list[str]:
    """What so many requests get, of which the first one has begun before it may end."""
    body.go.clear()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(call())) for _ in range(number)]
    for thread in threads:
        thread.start()
    body.has_begun()
    threads[0].join(0.1)
    body.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    return found


def here(name: str) -> str:
    return f"{__name__}.{name}"


MIDDLEWARE = [PAIR, [BOTH, OTHER], [UPDATE, here("SyncOnly"), FETCH], [here("SyncOnly"), BOTH]]


@pytest.mark.parametrize("middleware", MIDDLEWARE, ids=["pair", "both", "pair-sync", "both-sync"])
@pytest.mark.parametrize("address", ["/view/", "/aview/"])
def test_many_requests_render_one_page(settings: Any, middleware: list[str], address: str) -> None:
    """[S41] Whatever stands between the two; in threads."""
    settings.MIDDLEWARE = middleware
    assert at_once(lambda: ask(address)) == ["page 1"] * 4
    assert ask(address) == "page 1"


@pytest.mark.parametrize("middleware", MIDDLEWARE, ids=["pair", "both", "pair-sync", "both-sync"])
@pytest.mark.parametrize("address", ["/view/", "/aview/"])
def test_many_tasks_render_one_page(settings: Any, middleware: list[str], address: str) -> None:
    """[S22] [S41] The same, in tasks of one loop."""
    settings.MIDDLEWARE = middleware
    body.go.clear()

    async def story() -> list[str]:
        tasks = [asyncio.create_task(aask(address)) for _ in range(4)]
        await asyncio.to_thread(body.has_begun)
        await asyncio.sleep(0.05)
        body.go.set()
        return await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    assert asyncio.run(story()) == ["page 1"] * 4


def test_what_fails_is_not_waited_for() -> None:
    """[S40] 500, for each one; and when it works again, for the first one."""

    def fails(number: int) -> HttpResponse:
        raise ZeroDivisionError

    body.answer = fails
    assert all("Server Error" in page for page in at_once(lambda: ask("/view/")))
    assert body.rendered == 4
    body.answer = lambda number: HttpResponse("works")
    assert [ask("/view/"), ask("/view/")] == ["works"] * 2
    assert body.rendered == 5


def test_old_pages_are_served(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the site's settings."""
    settings.CACHE_MIDDLEWARE_STALE = 1000
    settings.CACHE_MIDDLEWARE_SECONDS = 60
    ask("/view/")
    body.has_begun()
    real = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: real() + 100)
    body.go.clear()
    renders = threading.Thread(target=ask, args=["/view/"])
    renders.start()
    body.has_begun()
    assert [ask("/view/") for _ in range(3)] == ["page 1"] * 3
    body.go.set()
    renders.join(PATIENCE)
    assert ask("/view/") == "page 2"


def test_a_site_may_wait_shorter(settings: Any) -> None:
    settings.CACHE_MIDDLEWARE_WAIT = 0
    body.go.clear()
    threads = [threading.Thread(target=ask, args=["/view/"]) for _ in range(2)]
    for thread in threads:
        thread.start()
        body.has_begun()
    body.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    settings.CACHE_MIDDLEWARE_STALE = -1
    with pytest.raises(ValueError, match="stale"):
        ask("/view/")


def test_nobody_waits_if_nobody_would_tell(settings: Any) -> None:
    """The second of the pair alone stores nothing, so it has nobody wait."""
    settings.MIDDLEWARE = [FETCH]
    body.go.clear()
    threads = [threading.Thread(target=ask, args=["/view/"]) for _ in range(2)]
    for thread in threads:
        thread.start()
        body.has_begun()
    body.go.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_the_first_alone_stores(settings: Any) -> None:
    settings.MIDDLEWARE = [UPDATE]
    assert [ask("/view/"), ask("/view/")] == ["page 1", "page 2"]


@pytest.mark.parametrize("middleware", [PAIR, [BOTH]], ids=["pair", "both"])
def test_a_page_of_its_own_does_not_wait_for_the_site(settings: Any, middleware: list[str]) -> None:
    """[S19] Both have the same keys: the view's turn is the site's."""
    settings.MIDDLEWARE = middleware
    begin = clock.now()
    assert at_once(lambda: ask("/decorated/")) == ["page 1"] * 4
    assert clock.now() - begin < 8


def test_templates_are_rendered_by_django(settings: Any) -> None:
    """After the middleware that looks at their context, and only then are they stored."""
    settings.MIDDLEWARE = [here("Late")]
    assert [ask("/template/"), ask("/template/")] == ["page 1 late"] * 2
    assert body.rendered == 1


def test_personal_pages_are_nobody_elses() -> None:
    """[S42] As Django's: what varies on cookies does so."""
    body.answer = lambda number: HttpResponse(f"page {number}", headers={"Vary": "Cookie"})
    assert [ask("/view/", cookie=f"who={who}") for who in "abab"] == ["page 1", "page 2"] * 2


def test_no_turn_is_left() -> None:
    ask("/view/")
    client = caches["default"]._cache.get_client()
    until(lambda: len(client.keys("*")) == 2)

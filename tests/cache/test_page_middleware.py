"""The cache middleware for a whole site: one request renders each page."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpRequest
from django.test import AsyncClient, Client
from django.urls import path

from django_redis_locks.cache import cached_page
from tests.cache.backends import REDIS
from tests.cache.page_requests import CountingView, aeventually, any_request_waits
from tests.django.helpers import PATIENCE

UPDATE = "django_redis_locks.cache.middleware.StampedeUpdateMiddleware"
FETCH = "django_redis_locks.cache.middleware.StampedeFetchMiddleware"
OTHER = "django.middleware.common.CommonMiddleware"


class SyncOnly:
    """Synchronous middleware, for which Django switches between threads and tasks."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)


body = CountingView()


def view(request: HttpRequest) -> Any:
    return body(request)


async def aview(request: HttpRequest) -> Any:
    return await body.arender(request)


@cached_page(300, wait=30)
def decorated(request: HttpRequest) -> Any:
    return body(request)


urlpatterns = [path("view/", view), path("aview/", aview), path("decorated/", decorated)]

PAIR = [UPDATE, OTHER, FETCH]


@pytest.fixture(autouse=True)
def site(settings: Any, redis_url: str) -> Iterator[None]:
    settings.CACHES = {"default": {"BACKEND": REDIS, "LOCATION": redis_url}}
    settings.ROOT_URLCONF = sys.modules[__name__]
    settings.MIDDLEWARE = PAIR
    settings.CACHE_MIDDLEWARE_WAIT = PATIENCE
    body.__init__()  # type: ignore[misc]
    yield
    caches.close_all()


def get_page(address: str, **headers: str) -> str:
    return str(Client(raise_request_exception=False).get(address, headers=headers).content.decode())


def bodies_of_concurrent(address: str) -> list[str]:
    """The bodies of concurrent requests."""
    return body.bodies_of_concurrent(
        lambda request: Client(raise_request_exception=False).get(request.path), 4, path=address
    )


def both_render() -> bool:
    return body.both_render(lambda request: Client().get(request.path), path="/view/")


def here(name: str) -> str:
    return f"{__name__}.{name}"


# Each middleware, with each kind of view, in threads and in tasks of one loop; pairwise
SITES = {
    "pair-view-threads": (PAIR, "/view/", "threads"),
    "pair-aview-tasks": (PAIR, "/aview/", "tasks"),
    "pair-aview-threads": (PAIR, "/aview/", "threads"),
    "pair-view-tasks": (PAIR, "/view/", "tasks"),
    "pair-sync-aview-tasks": ([UPDATE, here("SyncOnly"), FETCH], "/aview/", "tasks"),
    "pair-sync-view-tasks": ([UPDATE, here("SyncOnly"), FETCH], "/view/", "tasks"),
    "sync-pair-view-threads": ([here("SyncOnly"), *PAIR], "/view/", "threads"),
}


@pytest.mark.parametrize(("middleware", "address", "by"), SITES.values(), ids=SITES)
def test_concurrent_requests_render_one_page(settings: Any, middleware: list[str], address: str, by: str) -> None:
    """[S22] [S41] With any middleware between the two."""
    settings.MIDDLEWARE = middleware

    async def in_tasks() -> list[str]:
        body.gate.clear()
        client = AsyncClient(raise_request_exception=False)
        tasks = [asyncio.ensure_future(client.get(address)) for _ in range(4)]
        await asyncio.to_thread(body.wait_until_begun)
        # With sync-only middleware the other requests wait for Django's thread, not for the page
        await aeventually(lambda: any_request_waits() or here("SyncOnly") in middleware)
        body.gate.set()
        return [each.content.decode() for each in await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)]

    assert (asyncio.run(in_tasks()) if by == "tasks" else bodies_of_concurrent(address)) == ["page 1"] * 4
    assert get_page(address) == "page 1"


def test_stale_pages_are_served_by_setting(settings: Any, wall_clock: Callable[[float], None]) -> None:
    settings.CACHE_MIDDLEWARE_STALE = 1000
    settings.CACHE_MIDDLEWARE_SECONDS = 60
    get_page("/view/")
    body.wait_until_begun()
    wall_clock(100)
    body.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        renders = pool.submit(get_page, "/view/")
        body.wait_until_begun()
        assert [get_page("/view/") for _ in range(3)] == ["page 1"] * 3
        body.gate.set()
        renders.result(PATIENCE)
    assert get_page("/view/") == "page 2"


def test_wait_follows_its_setting(settings: Any) -> None:
    settings.CACHE_MIDDLEWARE_WAIT = 0
    assert both_render()
    settings.CACHE_MIDDLEWARE_STALE = -1
    with pytest.raises(ValueError, match="stale"):
        get_page("/view/")


def test_fetch_middleware_alone_does_not_wait(settings: Any) -> None:
    """Without the update middleware nothing is stored, so that requests would wait in vain."""
    settings.MIDDLEWARE = [FETCH]
    assert both_render()


def test_update_middleware_alone_serves_no_cached_page(settings: Any) -> None:
    settings.MIDDLEWARE = [UPDATE]
    assert [get_page("/view/"), get_page("/view/")] == ["page 1", "page 2"]


def test_decorated_view_does_not_wait_for_the_middleware() -> None:
    """[S19] Both have the same keys, so that the view would wait for the lease of its own request."""
    begin = monotonic()
    assert bodies_of_concurrent("/decorated/") == ["page 1"] * 4
    assert monotonic() - begin < 8

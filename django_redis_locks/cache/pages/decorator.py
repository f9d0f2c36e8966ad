"""``@cached_page``: caches the responses of a view by Django's own rules, and lets one request render a page.

Django's middleware reads and stores pages. Between the two a request claims a render lease; a request that waited for
that lease reads again through Django's middleware, which compares the headers that the page varies on. So no request
gets a page that Django wouldn't serve to it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.core.cache import DEFAULT_CACHE_ALIAS
from django.middleware.cache import CacheMiddleware

from .request import PageRequest
from .storage import PageOptions

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ...core.durations import Duration

V = TypeVar("V", bound=Callable[..., Any])


class Pages(PageOptions, CacheMiddleware):
    """Django's cache middleware for one view; concurrent requests for a page render it once."""

    def serve(self, request: HttpRequest, view: Callable[[], Any]) -> Any:
        """Return the page, from the cache or the view."""
        page_request = PageRequest(self, request)
        page = page_request.fetch()
        if page is not None:
            return page
        try:
            response = view()
            if inspect.iscoroutine(response):
                response.close()
                raise TypeError(
                    "cached_page got an awaitable from a synchronous view: decorate the async handler itself"
                )
        except BaseException as failure:
            page_request.end(bypass=isinstance(failure, Exception))
            raise
        return page_request.finish(response)

    async def aserve(self, request: HttpRequest, view: Callable[[], Any]) -> Any:
        """Return the page, from the cache or the asynchronous view."""
        page_request = PageRequest(self, request)
        page = await page_request.afetch()
        if page is not None:
            return page
        try:
            response = await view()
        except BaseException as failure:
            await page_request.aend(bypass=isinstance(failure, Exception))
            raise
        return await page_request.afinish(response)


def cached_page(
    timeout: Duration | None,
    *,
    cache: str | None = None,
    key_prefix: str | None = None,
    stale: Duration = 0,
    wait: Duration = 5,
    wait_with_cookies: bool = False,
    using: str | None = None,
) -> Callable[[V], V]:
    """Cache the responses of a view as ``cache_page`` does, under the same keys, and let one request render a page.

    Until it is stored, other requests get the stale page, if there is one, or wait. After a response that may not be
    cached, requests for that page don't wait for each other for a minute::

        @cached_page(60, stale=300)
        def sales(request): ...

    Args:
        timeout: seconds for which a page is fresh; None: its ``max-age``, or ``CACHE_MIDDLEWARE_SECONDS``.
        cache: alias of ``CACHES``.
        key_prefix: as for ``cache_page``.
        stale: seconds after ``timeout`` in which a page is served while one request renders the new one.
        wait: seconds for which a request waits for the page that another one renders; then it renders its own.
        wait_with_cookies: requests with cookies or an ``Authorization`` header wait too, before it is known whether the
            page varies on them.
        using: alias of the locks, for caches that aren't on Redis.

    Returns:
        A decorator of views, synchronous or not.

    Raises:
        ValueError: at decoration, for a time out of its range.
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()

    def decorate(view: V) -> V:
        pages = Pages(view, page_timeout=timeout, cache_alias=cache or DEFAULT_CACHE_ALIAS, key_prefix=key_prefix)
        pages.set_times(stale, wait)
        pages.wait_with_cookies, pages.using = wait_with_cookies, using

        async def aserved(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            _check(request)
            return await pages.aserve(request, lambda: view(request, *args, **kwargs))

        def served(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            _check(request)
            return pages.serve(request, lambda: view(request, *args, **kwargs))

        wrapper: Any = functools.wraps(view)(aserved if iscoroutinefunction(view) else served)
        return wrapper  # type: ignore[no-any-return]

    return decorate


def _check(request: Any) -> None:
    if not hasattr(request, "META"):
        raise TypeError(
            "cached_page didn't get an HttpRequest: decorate a method of a class with @method_decorator(cached_page(...))"
        )

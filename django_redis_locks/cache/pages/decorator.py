"""``@cached_page``: a page that is rendered once, by Django's own rules of what may be cached, and for whom.

Django's middleware looks a page up and stores it; between the two we give turns. A turn never hands a page over: whoever
waited looks it up again, by the headers that the answer varies on. So a page goes to nobody whom Django wouldn't give it.
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
        """The page, from the cache or the view."""
        visit = PageRequest(self, request)
        page = visit.fetch()
        if page is not None:
            return page
        try:
            response = view()
            if inspect.iscoroutine(response):
                response.close()
                raise TypeError(
                    "cached_page is given an awaitable by a synchronous view: decorate the async handler itself"
                )
        except BaseException as failure:
            visit.end(passing=isinstance(failure, Exception))
            raise
        return visit.finish(response)

    async def aserve(self, request: HttpRequest, view: Callable[[], Any]) -> Any:
        """As ``serve``."""
        visit = PageRequest(self, request)
        page = await visit.afetch()
        if page is not None:
            return page
        try:
            response = await view()
        except BaseException as failure:
            await visit.aend(passing=isinstance(failure, Exception))
            raise
        return await visit.afinish(response)


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
    """Keep the answers of a view as ``cache_page`` does, under the same keys, and have each rendered by one request.

    Others wait for it; those who find a page that has outlived its time, while one renders the new one, are given that.
    Answers that may not be cached are found out once a minute at most: nobody waits for those.

    Args:
        timeout: seconds for which a page is fresh; None: what its ``max-age`` says, or ``CACHE_MIDDLEWARE_SECONDS``.
        cache: the alias of the cache.
        key_prefix: as for ``cache_page``.
        stale: seconds after that in which a page is served while one request renders the new one.
        wait: seconds that a request waits for another's page; then it renders its own.
        wait_with_cookies: also have requests with cookies or an ``Authorization`` header wait, before it is known whether the page
            depends on them.
        using: the alias of the locks, for caches that aren't on Redis.

    Raises:
        ValueError: at decoration, for a time out of range.
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()

    def decorate(view: V) -> V:
        pages = Pages(view, page_timeout=timeout, cache_alias=cache or DEFAULT_CACHE_ALIAS, key_prefix=key_prefix)
        pages.agree(stale, wait)
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
            "cached_page didn't receive an HttpRequest: on a method of a class write @method_decorator(cached_page(...))"
        )

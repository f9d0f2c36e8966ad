"""The per-site page cache: two middleware classes that let one of several concurrent requests render a page.

They replace Django's ``UpdateCacheMiddleware`` and ``FetchFromCacheMiddleware`` in ``MIDDLEWARE``. The settings are
Django's ``CACHE_MIDDLEWARE_ALIAS``, ``CACHE_MIDDLEWARE_SECONDS`` and ``CACHE_MIDDLEWARE_KEY_PREFIX``, and
``CACHE_MIDDLEWARE_STALE`` and ``CACHE_MIDDLEWARE_WAIT``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.middleware.cache import FetchFromCacheMiddleware, UpdateCacheMiddleware

from .pages.request import PageRequest
from .pages.storage import PageOptions

if TYPE_CHECKING:
    from django.http import HttpRequest

_UPDATED_LATER = "_redis_locks_page_updated_later"
"""Set on requests that passed the update middleware, which will store the response."""

_PAGE_REQUEST = "_redis_locks_page_request"


class StampedeUpdateMiddleware(PageOptions, UpdateCacheMiddleware):
    """The first middleware: stores pages and releases their render leases."""

    def __call__(self, request: HttpRequest) -> Any:
        """Return the response, and store it if it may be cached."""
        if self.async_mode:
            return self.__acall__(request)
        setattr(request, _UPDATED_LATER, True)
        try:
            response = self.get_response(request)
        except BaseException:
            self._page_request(request).end()
            raise
        return self._page_request(request).finish(response)

    async def __acall__(self, request: HttpRequest) -> Any:
        setattr(request, _UPDATED_LATER, True)
        try:
            answer: Any = self.get_response(request)
            response = await answer
        except BaseException:
            await self._page_request(request).aend()
            raise
        return await self._page_request(request).afinish(response)

    def _page_request(self, request: HttpRequest) -> PageRequest:
        """Return the page request that the fetch middleware made, or a new one. This middleware stores its response."""
        fetched: PageRequest | None = vars(request).pop(_PAGE_REQUEST, None)
        return PageRequest(self, request) if fetched is None else fetched.stored_by(self)


class StampedeFetchMiddleware(PageOptions, FetchFromCacheMiddleware):
    """The last middleware: reads pages, and waits for those that another request renders.

    Without a ``StampedeUpdateMiddleware``, which would release render leases, it takes none and doesn't wait.
    """

    def __call__(self, request: HttpRequest) -> Any:
        """Return the page from the cache, or the response of the view."""
        if self.async_mode:
            return self.__acall__(request)
        page_request = self._page_request(request)
        page = page_request.fetch()
        return self.get_response(request) if page is None else page

    async def __acall__(self, request: HttpRequest) -> Any:
        page_request = self._page_request(request)
        page: Any = await page_request.afetch()
        if page is None:
            answer: Any = self.get_response(request)
            page = await answer
        return page

    def _page_request(self, request: HttpRequest) -> PageRequest:
        page_request = PageRequest(self, request)
        if hasattr(request, _UPDATED_LATER):
            setattr(request, _PAGE_REQUEST, page_request)
        else:
            page_request.may_wait = False
        return page_request

"""The two classes of Django's cache middleware for a whole site; one request renders a page.

They take the places of Django's classes in ``MIDDLEWARE``. The settings are Django's ``CACHE_MIDDLEWARE_ALIAS``,
``CACHE_MIDDLEWARE_SECONDS`` and ``CACHE_MIDDLEWARE_KEY_PREFIX``, and ``CACHE_MIDDLEWARE_STALE`` and
``CACHE_MIDDLEWARE_WAIT``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.middleware.cache import FetchFromCacheMiddleware, UpdateCacheMiddleware

from .pages.request import PageRequest
from .pages.storage import PageOptions

if TYPE_CHECKING:
    from django.http import HttpRequest

_UPDATED_LATER = "_redis_locks_page_updated_later"
_PAGE_REQUEST = "_redis_locks_page_request"


class StampedeUpdateMiddleware(PageOptions, UpdateCacheMiddleware):
    """The first middleware: stores pages and releases their render leases."""

    def __call__(self, request: HttpRequest) -> Any:
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
        """Return the page request of the fetch middleware, or a new one, to be stored by this middleware."""
        earlier: PageRequest | None = vars(request).pop(_PAGE_REQUEST, None)
        return PageRequest(self, request) if earlier is None else earlier.stored_by(self)


class StampedeFetchMiddleware(PageOptions, FetchFromCacheMiddleware):
    """The last middleware: reads pages, and waits for those that another request renders. Without a
    ``StampedeUpdateMiddleware``, which releases render leases, it doesn't wait."""

    def __call__(self, request: HttpRequest) -> Any:
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

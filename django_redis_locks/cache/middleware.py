"""Django's cache middleware, for a whole site, with one request to render each page.

Write these where Django's would stand, with the settings ``CACHE_MIDDLEWARE_ALIAS``, ``…_SECONDS`` and ``…_KEY_PREFIX``, and
our own ``…_STALE`` and ``…_WAIT``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.middleware.cache import FetchFromCacheMiddleware, UpdateCacheMiddleware

from .pages.request import PageRequest
from .pages.storage import PageOptions

if TYPE_CHECKING:
    from django.http import HttpRequest

_EXPECTED = "_redis_locks_page_expected"
_VISIT = "_redis_locks_page_visit"


class StampedeUpdateMiddleware(PageOptions, UpdateCacheMiddleware):
    """The first of the middleware. It stores pages, and has those who wait for one go on."""

    def __call__(self, request: HttpRequest) -> Any:
        if self.async_mode:
            return self.__acall__(request)
        setattr(request, _EXPECTED, True)
        try:
            response = self.get_response(request)
        except BaseException:
            visit = self._visit(request)
            visit.end()
            raise
        return self._visit(request).finish(response)

    async def __acall__(self, request: HttpRequest) -> Any:
        setattr(request, _EXPECTED, True)
        try:
            answer: Any = self.get_response(request)
            response = await answer
        except BaseException:
            await self._visit(request).aend()
            raise
        return await self._visit(request).afinish(response)

    def _visit(self, request: HttpRequest) -> PageRequest:
        """What the last one of the middleware has begun; it stores by our rules."""
        begun: PageRequest | None = vars(request).pop(_VISIT, None)
        return PageRequest(self, request) if begun is None else begun.under(self)


class StampedeFetchMiddleware(PageOptions, FetchFromCacheMiddleware):
    """The last of the middleware. It looks pages up, and waits for those that another request renders, if
    ``StampedeUpdateMiddleware`` is there to tell when that is done."""

    def __call__(self, request: HttpRequest) -> Any:
        if self.async_mode:
            return self.__acall__(request)
        visit = self._visit(request)
        page = visit.fetch()
        return self.get_response(request) if page is None else page

    async def __acall__(self, request: HttpRequest) -> Any:
        visit = self._visit(request)
        page: Any = await visit.afetch()
        if page is None:
            answer: Any = self.get_response(request)
            page = await answer
        return page

    def _visit(self, request: HttpRequest) -> PageRequest:
        visit = PageRequest(self, request)
        if hasattr(request, _EXPECTED):
            setattr(request, _VISIT, visit)
        else:
            visit.waits = False
        return visit

"""One request for a page that may be cached: reads the page, acquires its render lease, stores the response."""

from __future__ import annotations

import copy
import weakref
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Final

from asgiref.sync import sync_to_async
from django.utils.cache import get_cache_key

from ...core import clock
from ...core.runner import arun, run
from ..loading.coordinator import coordinator_of
from .render_lease import RenderLease
from .storage import FRESH_UNTIL, RecordingCache, is_fresh

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

BYPASS_TIME: Final = 60.0
"""Seconds for which requests render a page without waiting for each other, after a response that wasn't stored."""

LEASES: Final = "_redis_locks_render_leases"
"""The attribute of a request with the keys of the render leases that it holds."""


class PageRequest:
    """One request in one of Django's cache middleware classes, with ``PageOptions``.

    Attributes:
        may_wait: whether the request may acquire a render lease or wait for one. False if no middleware would release
            it.
    """

    def __init__(self, middleware: Any, request: HttpRequest) -> None:
        self._middleware = middleware = copy.copy(middleware)
        self._recording_cache = middleware.recording_cache = RecordingCache(middleware)
        self._request = request
        self._wait_until = inf
        self._stale_page: HttpResponseBase | None = None
        self._lease: RenderLease | None = None
        self._performer: Any = None
        self.may_wait = True

    def stored_by(self, middleware: Any) -> PageRequest:
        """Let another middleware store the response."""
        self._middleware = copy.copy(middleware)
        self._middleware.recording_cache = RecordingCache(middleware)
        return self

    def fetch(self) -> HttpResponseBase | None:
        """Return the page to serve, or None if the view must render it."""
        while True:
            is_last_read = self._is_wait_over()
            page = self._read()
            lease = None if page is not None or is_last_read else self._next_lease()
            if lease is None:
                return page
            run(lease.acquire(self._remaining_wait()), self._performer)
            if lease.owned:
                self._keep_lease(lease)
                try:
                    page = self._read()
                except BaseException:
                    self.end()
                    raise
                if page is not None:
                    self.end()
                return page
            run(lease.release(), self._performer)
            if self._stale_page is not None:
                return self._serve_stale()
            if lease.bypass and not self._is_wait_over():
                return None

    async def afetch(self) -> HttpResponseBase | None:
        """Return the page to serve, or None if the view must render it."""
        read = sync_to_async(self._read, thread_sensitive=True)
        while True:
            is_last_read = self._is_wait_over()
            page = await read()
            lease = None if page is not None or is_last_read else self._next_lease()
            if lease is None:
                return page
            await arun(lease.acquire(self._remaining_wait()), self._performer)
            if lease.owned:
                self._keep_lease(lease)
                try:
                    page = await read()
                except BaseException:
                    await self.aend()
                    raise
                if page is not None:
                    await self.aend()
                return page
            await arun(lease.release(), self._performer)
            if self._stale_page is not None:
                return self._serve_stale()
            if lease.bypass and not self._is_wait_over():
                return None

    def finish(self, response: Any) -> Any:
        """Store the view's response, by Django's rules, and release the render lease."""
        if _unrendered(response):
            return self._finish_later(response)
        try:
            response = self._store(response)
        except BaseException:
            self.end()
            raise
        self.end(bypass=self._is_not_stored(response))
        return response

    async def afinish(self, response: Any) -> Any:
        """Store the view's response, by Django's rules, and release the render lease."""
        if _unrendered(response):
            return self._finish_later(response)
        try:
            response = await sync_to_async(self._store, thread_sensitive=True)(response)
        except BaseException:
            await self.aend()
            raise
        await self.aend(bypass=self._is_not_stored(response))
        return response

    def end(self, *, bypass: bool = False) -> None:
        """Release the render lease. With ``bypass`` the next requests render without waiting for each other."""
        lease = self._detach_lease(bypass)
        if lease is not None:
            run(lease.release(), self._performer)

    async def aend(self, *, bypass: bool = False) -> None:
        """Release the render lease. With ``bypass`` the next requests render without waiting for each other."""
        lease = self._detach_lease(bypass)
        if lease is not None:
            await arun(lease.release(), self._performer)

    def _read(self) -> HttpResponseBase | None:
        """Return the page if it is fresh; keep a stale one in ``_stale_page``."""
        self._recording_cache.keys_read.clear()
        self._stale_page = None
        page: HttpResponseBase | None = self._middleware.process_request(self._request)
        if page is None or is_fresh(page):
            return page
        head_page = self._head_response() if self._request.method == "HEAD" else None
        if head_page is not None and is_fresh(head_page):
            return head_page
        self._stale_page = page
        self._request._cache_update_cache = True  # type: ignore[attr-defined] # Django's flag to store the response
        return None

    def _head_response(self) -> HttpResponseBase | None:
        """Return the cached response to HEAD, which Django reads only if there is no cached response to GET."""
        middleware = self._middleware
        key = get_cache_key(self._request, middleware.key_prefix, "HEAD", cache=middleware.cache)
        page: HttpResponseBase | None = middleware.cache.get(key) if key else None
        return page

    def _serve_stale(self) -> HttpResponseBase | None:
        self._request._cache_update_cache = False  # type: ignore[attr-defined]
        return self._stale_page

    def _next_lease(self) -> RenderLease | None:
        """Return the lease of the page; None if this request renders it without waiting for others."""
        middleware, keys_read = self._middleware, self._recording_cache.keys_read
        timeout = getattr(middleware, "page_timeout", None)
        if not (self.may_wait and keys_read) or (timeout is not None and timeout <= 0):
            return None
        meta = self._request.META
        vary_known = len(keys_read) > 1
        if not (vary_known or middleware.wait_with_cookies) and (
            meta.get("HTTP_COOKIE") or meta.get("HTTP_AUTHORIZATION")
        ):
            return None
        coordinator = coordinator_of(middleware.cache_alias, middleware.using)
        self._performer = coordinator.performer
        lease = RenderLease(coordinator, f"{keys_read[-1]}.{self._request.method}.turn")
        # The request holds it already: the middleware and the decorator are both used, or a view calls another one
        return None if lease.key in _leases_of(self._request) else lease

    def _remaining_wait(self) -> float:
        now = clock.now()
        if self._wait_until == inf:
            self._wait_until = now + self._middleware.wait
        return 0.0 if self._stale_page is not None else max(self._wait_until - now, 0.0)

    def _is_wait_over(self) -> bool:
        """Whether the time to wait has ended. The page is read once more after that: it may have just been stored."""
        return clock.now() >= self._wait_until

    def _keep_lease(self, lease: RenderLease) -> None:
        self._lease = lease
        _leases_of(self._request).add(lease.key)

    def _detach_lease(self, bypass: bool) -> RenderLease | None:
        lease, self._lease = self._lease, None
        if lease is not None:
            _leases_of(self._request).discard(lease.key)
            if bypass and self._stale_page is None:
                lease.bypass_for(BYPASS_TIME)
        return lease

    def _store(self, response: Any) -> Any:
        """Store the response as Django does, unless the cache was cleared after the lease was claimed: the response may
        be older than that."""
        if self._lease is not None and not run(self._lease.is_held(), self._performer):
            self._request._cache_update_cache = False  # type: ignore[attr-defined]
        return self._middleware.process_response(self._request, response)

    def _is_not_stored(self, response: Any) -> bool:
        """Whether responses for this page are probably never stored. A response from an inner cache counts as stored;
        a 304 says nothing about the page."""
        is_stored = self._middleware.recording_cache.is_stored
        stored = hasattr(response, FRESH_UNTIL) if is_stored is None else is_stored
        return not stored and response.status_code != HTTPStatus.NOT_MODIFIED

    def _finish_later(self, response: Any) -> Any:
        """Store a ``TemplateResponse`` when Django renders it, which is after the template-response middleware."""
        response.add_post_render_callback(self._store)

        def render() -> Any:
            del response.render
            try:
                rendered = response.render()
            except BaseException as failure:
                self.end(bypass=isinstance(failure, Exception))
                raise
            self.end(bypass=self._is_not_stored(rendered))
            return rendered

        if self._lease is not None:
            response.render = render
            weakref.finalize(response, self._lease.abandon).atexit = False  # it may never be rendered
        return response


def _leases_of(request: Any) -> set[str]:
    """Return the keys of the render leases that this request holds."""
    held: set[str] = vars(request).setdefault(LEASES, set())
    return held


def _unrendered(response: Any) -> bool:
    return callable(getattr(response, "render", None)) and not response.is_rendered

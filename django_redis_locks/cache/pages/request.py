"""One request for a page that may be cached: look, take a turn, render, store."""

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
from .storage import FRESH, RecordingCache, fresh

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

PASSED_BY: Final = 60.0
"""Seconds for which nobody waits for a page that wasn't stored."""

HELD: Final = "_redis_locks_turns"


class PageRequest:
    """One request that comes to a middleware of Django's with our ``PageOptions``."""

    def __init__(self, middleware: Any, request: HttpRequest) -> None:
        self._middleware = middleware = copy.copy(middleware)
        self._shelf = middleware.shelf = RecordingCache(middleware)
        self._request = request
        self._until = inf
        self._old: HttpResponseBase | None = None
        self._turn: RenderLease | None = None
        self._world: Any = None
        self._key = ""
        self.waits = True
        """Somebody will tell the others when it is over."""

    def under(self, middleware: Any) -> PageRequest:
        """It is another middleware that stores the answer."""
        self._middleware = copy.copy(middleware)
        self._middleware.shelf = RecordingCache(middleware)
        return self

    def fetch(self) -> HttpResponseBase | None:
        """A page to be served; None if the view is to render it."""
        while True:
            last = self._waited_long()
            page = self._look()
            turn = None if page is not None or last else self._next_turn()
            if turn is None:
                return page
            run(turn.begin(self._patience()), self._world)
            if turn.mine:
                self._hold(turn)
                try:
                    page = self._look()
                except BaseException:
                    self.end()
                    raise
                if page is not None:
                    self.end()
                return page
            run(turn.end(), self._world)
            if self._old is not None:
                return self._served_old()
            if turn.passing and not self._waited_long():
                return None

    async def afetch(self) -> HttpResponseBase | None:
        """As ``fetch``."""
        look = sync_to_async(self._look, thread_sensitive=True)
        while True:
            last = self._waited_long()
            page = await look()
            turn = None if page is not None or last else self._next_turn()
            if turn is None:
                return page
            await arun(turn.begin(self._patience()), self._world)
            if turn.mine:
                self._hold(turn)
                try:
                    page = await look()
                except BaseException:
                    await self.aend()
                    raise
                if page is not None:
                    await self.aend()
                return page
            await arun(turn.end(), self._world)
            if self._old is not None:
                return self._served_old()
            if turn.passing and not self._waited_long():
                return None

    def finish(self, response: Any) -> Any:
        """Store what the view has answered, by Django's rules, and let the others go on."""
        if _unrendered(response):
            return self._finish_later(response)
        try:
            response = self._store(response)
        except BaseException:
            self.end()
            raise
        self.end(passing=self._unstored(response))
        return response

    async def afinish(self, response: Any) -> Any:
        """As ``finish``."""
        if _unrendered(response):
            return self._finish_later(response)
        try:
            response = await sync_to_async(self._store, thread_sensitive=True)(response)
        except BaseException:
            await self.aend()
            raise
        await self.aend(passing=self._unstored(response))
        return response

    def end(self, *, passing: bool = False) -> None:
        """Let the others go on; ``passing``: without waiting for the next one's page either."""
        turn = self._let_go(passing)
        if turn is not None:
            run(turn.end(), self._world)

    async def aend(self, *, passing: bool = False) -> None:
        """As ``end``."""
        turn = self._let_go(passing)
        if turn is not None:
            await arun(turn.end(), self._world)

    def _look(self) -> HttpResponseBase | None:
        """A fresh page; what is past its time is kept in mind."""
        self._shelf.asked.clear()
        self._old = None
        page: HttpResponseBase | None = self._middleware.process_request(self._request)
        if page is None or fresh(page):
            return page
        own = self._own() if self._request.method == "HEAD" else None
        if own is not None and fresh(own):
            return own
        self._old = page
        self._request._cache_update_cache = True  # type: ignore[attr-defined] # it is Django's own
        return None

    def _own(self) -> HttpResponseBase | None:
        """What was answered to HEAD: Django looks for that only where there is no answer to GET."""
        terms = self._middleware
        key = get_cache_key(self._request, terms.key_prefix, "HEAD", cache=terms.cache)
        own: HttpResponseBase | None = terms.cache.get(key) if key else None
        return own

    def _served_old(self) -> HttpResponseBase | None:
        self._request._cache_update_cache = False  # type: ignore[attr-defined]
        return self._old

    def _next_turn(self) -> RenderLease | None:
        """Whom this request waits for, if it waits at all."""
        terms, asked = self._middleware, self._shelf.asked
        timeout = getattr(terms, "page_timeout", None)
        if not (self.waits and asked) or (timeout is not None and timeout <= 0):
            return None
        meta = self._request.META
        learned = len(asked) > 1
        if not (learned or terms.wait_with_cookies) and (meta.get("HTTP_COOKIE") or meta.get("HTTP_AUTHORIZATION")):
            return None
        coordinator = coordinator_of(terms.cache_alias, terms.using)
        self._world = coordinator.performer
        self._key = coordinator.key(f"{asked[-1]}.{self._request.method}.turn", None)
        if self._key in _held(self._request):  # a middleware and a decorator, or a view that calls another one
            return None
        return RenderLease(coordinator, self._key)

    def _patience(self) -> float:
        now = clock.now()
        if self._until == inf:
            self._until = now + self._middleware.wait
        return 0.0 if self._old is not None else max(self._until - now, 0.0)

    def _waited_long(self) -> bool:
        """The page may have been stored in this moment, so that it is looked up once more."""
        return clock.now() >= self._until

    def _hold(self, turn: RenderLease) -> None:
        self._turn = turn
        _held(self._request).add(self._key)

    def _let_go(self, passing: bool) -> RenderLease | None:
        turn, self._turn = self._turn, None
        if turn is not None:
            _held(self._request).discard(self._key)
            if passing and self._old is None:
                turn.pass_by(PASSED_BY)
        return turn

    def _store(self, response: Any) -> Any:
        """As Django does; not if the cache was cleared meanwhile: what was rendered is older than that."""
        if self._turn is not None and not run(self._turn.holding(), self._world):
            self._request._cache_update_cache = False  # type: ignore[attr-defined]
        return self._middleware.process_response(self._request, response)

    def _unstored(self, response: Any) -> bool:
        """Whether the next one's answer won't be stored either, presumably. One that is from a cache further in is no less
        stored; 304 answers only those who have the page."""
        kept = self._middleware.shelf.kept
        stored = hasattr(response, FRESH) if kept is None else kept
        return not stored and response.status_code != HTTPStatus.NOT_MODIFIED

    def _finish_later(self, response: Any) -> Any:
        """A response whose template isn't rendered yet: Django does so, after the middleware for that."""
        response.add_post_render_callback(self._store)

        def render() -> Any:
            del response.render
            try:
                rendered = response.render()
            except BaseException as failure:
                self.end(passing=isinstance(failure, Exception))
                raise
            self.end(passing=self._unstored(rendered))
            return rendered

        if self._turn is not None:
            response.render = render
            weakref.finalize(response, self._turn.drop).atexit = False  # nobody may ever render it
        return response


def _held(request: Any) -> set[str]:
    """The turns that this request has."""
    held: set[str] = vars(request).setdefault(HELD, set())
    return held


def _unrendered(response: Any) -> bool:
    return callable(getattr(response, "render", None)) and not response.is_rendered

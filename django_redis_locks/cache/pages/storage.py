"""The cache and the options of the page cache's middleware, with the times for which pages are kept."""

from __future__ import annotations

from math import inf
from random import random
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.cache import caches
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from ...core import clock
from ..options import options

if TYPE_CHECKING:
    from ...core.durations import Duration

JITTER: Final = 0.1
"""Pages are rendered anew before their time is over, by a random share of it up to this one; what browsers are told stays."""

LEARNED: Final = 86_400
"""Seconds for which it is known, longer than any page of it is kept, by which headers an address varies."""

FRESH: Final = "_redis_locks_fresh_until"


class PageOptions(MiddlewareMixin):
    """How a middleware has requests wait. A site's are in the settings ``CACHE_MIDDLEWARE_STALE`` and ``…_WAIT``, or
    attributes of a class of its own.

    Attributes:
        stale: seconds for which an old page is served, while one request renders the new one.
        wait: seconds that a request waits for another's page.
        wait_with_cookies: also those with cookies or ``Authorization``, before it is known whether the page depends on them.
        using: the alias of the locks, for caches that aren't on Redis.
    """

    stale: float = 0
    wait: float = 5
    wait_with_cookies: bool = False
    using: str | None = None
    cache_alias: str
    shelf: RecordingCache | None = None

    def __init__(self, get_response: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(get_response, *args, **kwargs)
        self.agree(
            getattr(settings, "CACHE_MIDDLEWARE_STALE", self.stale),
            getattr(settings, "CACHE_MIDDLEWARE_WAIT", self.wait),
        )

    def agree(self, stale: Duration, wait: Duration) -> None:
        """Check and set them.

        Raises:
            ValueError: one is out of its range.
        """
        known = options({"stale": stale, "wait": wait})
        self.stale, self.wait = known.stale, known.wait

    @property
    def cache(self) -> Any:
        return self.shelf or RecordingCache(self)


class RecordingCache:
    """A cache as Django's middleware uses it: it sees which keys are asked for, and keeps pages for longer than they are
    fresh."""

    def __init__(self, terms: PageOptions) -> None:
        self._alias = terms.cache_alias
        self._stale = terms.stale
        self.asked: list[str] = []
        self._learned: list[tuple[str, Any, float]] = []
        self.kept: bool | None = None
        """Whether the page that was stored is there: memcached drops what is too big, and says nothing."""

    def get(self, key: str) -> Any:
        self.asked.append(key)
        return caches[self._alias].get(key)

    def set(self, key: str, value: Any, timeout: float) -> None:
        if timeout > 0 and isinstance(value, HttpResponseBase):
            setattr(value, FRESH, clock.wall() + timeout * (1 - JITTER * random()))  # noqa: S311 - no secret
            caches[self._alias].set(key, value, timeout + self._stale)
            self.kept = key in caches[self._alias]
            # After the page: who knew its headers, and found none, would render it in a turn of its own
            while self._learned:
                caches[self._alias].set(*self._learned.pop())
        elif timeout > 0:
            self._learned.append((key, value, timeout + self._stale + LEARNED))
        else:
            caches[self._alias].set(key, value, timeout)


def fresh(page: HttpResponseBase) -> bool:
    """What Django's own middleware has stored is, as long as it is there."""
    return clock.wall() < getattr(page, FRESH, inf)

"""The options of the page cache's middleware, and the cache object that it reads and writes."""

from __future__ import annotations

from math import inf
from random import random
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.cache import caches
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from ...core import clock
from ..options import options as check

if TYPE_CHECKING:
    from ...core.durations import Duration

JITTER: Final = 0.1
"""The largest share of its ttl by which a page becomes stale earlier, at random. Its headers contain the whole ttl."""

HEADER_LIST_EXTRA: Final = 86_400
"""Seconds for which the list of headers that the pages of a URL vary on is kept longer than those pages."""

FRESH_UNTIL: Final = "_redis_locks_fresh_until"
"""The attribute of a stored response with the Unix time until which it is fresh."""


class PageOptions(MiddlewareMixin):
    """Options of the page cache's middleware classes. Projects set ``CACHE_MIDDLEWARE_STALE`` and
    ``CACHE_MIDDLEWARE_WAIT``, or the attributes of a subclass.

    Attributes:
        stale: seconds after its ttl for which a page is served while one request renders the new one.
        wait: seconds for which a request waits for the page that another one renders.
        wait_with_cookies: requests with cookies or an ``Authorization`` header wait too, before it is known whether the
            page varies on them.
        using: alias of the locks, for caches that aren't on Redis.
    """

    stale: float = 0
    wait: float = 5
    wait_with_cookies: bool = False
    using: str | None = None
    cache_alias: str
    recording_cache: RecordingCache | None = None

    def __init__(self, get_response: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(get_response, *args, **kwargs)
        self.set_times(
            getattr(settings, "CACHE_MIDDLEWARE_STALE", self.stale),
            getattr(settings, "CACHE_MIDDLEWARE_WAIT", self.wait),
        )

    def set_times(self, stale: Duration, wait: Duration) -> None:
        """Check and set ``stale`` and ``wait``.

        Raises:
            ValueError: a time is out of its range.
        """
        checked = check({"stale": stale, "wait": wait})
        self.stale, self.wait = checked.stale, checked.wait

    @property
    def cache(self) -> Any:
        """The cache as Django's middleware sees it."""
        return self.recording_cache or RecordingCache(self)


class RecordingCache:
    """The part of a cache that Django's middleware calls. It records the keys that are read, and stores pages for
    ``stale`` seconds longer than they are fresh.

    Attributes:
        keys_read: the keys that were read, in order.
        is_stored: whether the cache kept the page that was set; None before that. Memcached drops large values
            silently.
    """

    def __init__(self, options: PageOptions) -> None:
        self._alias = options.cache_alias
        self._stale = options.stale
        self.keys_read: list[str] = []
        self._header_lists: list[tuple[str, Any, float]] = []
        self.is_stored: bool | None = None

    def get(self, key: str) -> Any:
        """Return the value of a key, and record that it was read."""
        self.keys_read.append(key)
        return caches[self._alias].get(key)

    def set(self, key: str, value: Any, timeout: float) -> None:
        """Store a page, or record a list of headers, to be stored with its page."""
        if timeout > 0 and isinstance(value, HttpResponseBase):
            setattr(value, FRESH_UNTIL, clock.wall() + timeout * (1 - JITTER * random()))  # noqa: S311 - no secret
            caches[self._alias].set(key, value, timeout + self._stale)
            self.is_stored = key in caches[self._alias]
            # After the page: a request that found the headers without a page would claim the lease of that variant
            while self._header_lists:
                caches[self._alias].set(*self._header_lists.pop())
        elif timeout > 0:
            self._header_lists.append((key, value, timeout + self._stale + HEADER_LIST_EXTRA))
        else:
            caches[self._alias].set(key, value, timeout)


def is_fresh(page: HttpResponseBase) -> bool:
    """Whether a page is within its ttl. The cache drops pages of Django's own middleware at their end, so those are."""
    return clock.wall() < getattr(page, FRESH_UNTIL, inf)

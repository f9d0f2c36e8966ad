"""Options and caches that ``get_or_load`` refuses. Every option has its test in tests/unit/cache/test_options."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import InvalidCacheBackendError

from django_redis_locks import InvalidLockBackend
from django_redis_locks.cache import get_or_load, invalidate
from tests.cache.backends import DUMMY, FILES


def test_option_that_is_wrong_is_refused_by_get_or_load() -> None:
    with pytest.raises(ValueError, match="stale must be 0 or more"):
        get_or_load("k", lambda: 1, stale=-1)
    with pytest.raises(TypeError, match="no option 'timeout'; did you mean ttl="):
        get_or_load("k", lambda: 1, timeout=5)


def test_cache_that_is_unknown_is_refused(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": DUMMY}}
    with pytest.raises(InvalidCacheBackendError, match="There is no cache 'nowhere'"):
        get_or_load("k", lambda: 1, cache="nowhere")
    with pytest.raises(TypeError, match="cache is an alias of CACHES"):
        get_or_load("k", lambda: 1, cache=5)
    assert get_or_load("k", lambda: 1, cache=caches["default"]) == 1


def test_cache_elsewhere_without_redis_locks_is_refused(settings: Any, tmp_path: Any) -> None:
    """Its leases have to be somewhere."""
    settings.REDIS_LOCKS = {}
    settings.CACHES = {"default": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    for call in (lambda: get_or_load("k", lambda: 1), lambda: invalidate("k")):
        with pytest.raises(InvalidLockBackend, match="There is no alias 'default' in REDIS_LOCKS"):
            call()

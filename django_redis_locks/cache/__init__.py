"""Stampede protection for Django caches: one load per key on all hosts, stale values during a load, reliable
invalidation."""

from __future__ import annotations

from .api import aget_or_load, arefresh, get_or_load, refresh
from .api_invalidate import ainvalidate, invalidate
from .api_many import aget_or_load_many, get_or_load_many
from .backend.stampede import StampedeCache
from .decorator.cached import cached
from .errors import LoadError, LoadFailed, LoadTimeout
from .loading.loader import LoadContext, current_load
from .loading.refresh_job import Job
from .metrics import counters, load_finished
from .options import LoadOptions, XFetch
from .pages.decorator import cached_page
from .results import MISSING, LoadResult

__all__ = [
    "MISSING",
    "Job",
    "LoadContext",
    "LoadError",
    "LoadFailed",
    "LoadOptions",
    "LoadResult",
    "LoadTimeout",
    "StampedeCache",
    "XFetch",
    "aget_or_load",
    "aget_or_load_many",
    "ainvalidate",
    "arefresh",
    "cached",
    "cached_page",
    "counters",
    "current_load",
    "get_or_load",
    "get_or_load_many",
    "invalidate",
    "load_finished",
    "refresh",
]

"""Cache loads without stampedes: one loader per key on all hosts, stale values meanwhile, and an invalidation always wins."""

from __future__ import annotations

from .backend import StampedeCache
from .decorated import refreshed_by_celery, take_over
from .decorator import cached
from .early import XFetch
from .errors import LoadError, LoadFailed, LoadTimeout
from .functions import (
    aget_or_load,
    aget_or_load_many,
    ainvalidate,
    arefresh,
    get_or_load,
    get_or_load_many,
    invalidate,
    refresh,
)
from .loaders import LoadContext
from .metrics import counters, load_finished
from .pages import cached_page
from .refreshing import Job
from .results import MISSING, LoadResult

__all__ = [
    "MISSING",
    "Job",
    "LoadContext",
    "LoadError",
    "LoadFailed",
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
    "get_or_load",
    "get_or_load_many",
    "invalidate",
    "load_finished",
    "refresh",
    "refreshed_by_celery",
    "take_over",
]

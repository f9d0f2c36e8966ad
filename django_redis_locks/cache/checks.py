"""System checks of ``StampedeCache`` entries and of functions that workers refresh. They send no requests."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core import checks

from ..checks import check_message
from ..conf import Problem
from ..conf import cache_settings as servers
from ..conf.cache_settings import wraps
from .decorator.function import refreshed_by_celery
from .stampede_settings import problems

SESSION_ENGINES = ("django.contrib.sessions.backends.cache", "django.contrib.sessions.backends.cached_db")


def check_caches(app_configs: object = None, **_: Any) -> Sequence[checks.CheckMessage]:
    """Check all ``StampedeCache`` entries, and the functions that workers refresh."""
    table = settings.CACHES
    wrappers = {alias: entry for alias, entry in table.items() if wraps(entry)}
    found: list[Problem] = []
    for alias, entry in wrappers.items():
        found += problems(f"CACHES[{alias!r}]", entry, table)
    if wrappers and not found:
        found += [*_sessions(wrappers), *_replicas(wrappers)]
    found += _workers()
    return [check_message(problem) for problem in found]


def _workers() -> Iterator[Problem]:
    """Warn if workers may not have the task that refreshes cached functions.

    They have it if the project imports ``celery_locks``, or if Celery's settings name it. The check itself imports
    nothing.
    """
    paths = refreshed_by_celery()
    if not paths or "celery_locks" in sys.modules:
        return
    celery: Any = sys.modules.get("celery")
    if celery is not None:
        conf = celery.current_app.conf
        if any(name.partition(".")[0] == "celery_locks" for name in (*(conf.imports or ()), *(conf.include or ()))):
            return
    yield Problem(
        "W048",
        f'{paths[0]} has refresh="celery", and celery_locks isn\'t imported: workers may not have its task.',
        "Import celery_locks in the module of the project's Celery app, or name it in the app's imports.",
    )


def _sessions(wrappers: Mapping[str, Any]) -> Iterator[Problem]:
    alias = settings.SESSION_CACHE_ALIAS
    if settings.SESSION_ENGINE in SESSION_ENGINES and alias in wrappers:
        raw = wrappers[alias]["LOCATION"]
        yield Problem(
            "W046",
            f"Sessions are kept in the cache {alias!r}, a StampedeCache.",
            f"It has no use for sessions, and each save costs one more request. Set SESSION_CACHE_ALIAS = {raw!r}.",
        )


def _replicas(wrappers: Mapping[str, Any]) -> Iterator[Problem]:
    many = {alias for alias, number in Counter(alias for alias, _, _ in servers.redis_caches()).items() if number > 1}
    for alias, entry in wrappers.items():
        if entry["LOCATION"] in many:
            yield Problem(
                "W047",
                f"CACHES[{alias!r}]: the cache {entry['LOCATION']!r} has several servers, and its get() reads from replicas.",
                "A replica may lag behind what was just loaded or deleted. get_or_set() reads from the first server only.",
            )

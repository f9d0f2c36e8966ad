"""System checks of `StampedeCache`: each for a wrong entry, and none for a right one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import checks
from django.core.cache import InvalidCacheBackendError, cache

from django_redis_locks.cache import XFetch
from tests.cache.backends import FILES, LOCMEM, REDIS, WRAPPER

CACHED_DB = "django.contrib.sessions.backends.cached_db"
SIGNED = "django.contrib.sessions.backends.signed_cookies"


def check_messages(settings: Any, entry: dict[str, Any], raw: dict[str, Any] | None = None, **others: Any) -> list[Any]:
    """The messages of `manage.py check --tag redis_locks` about a StampedeCache."""
    settings.CACHES = {
        "raw": raw or {"BACKEND": LOCMEM},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw", **entry},
        **others,
    }
    ids = {f"redis_locks.{kind}04{number}" for kind in "EW" for number in range(10)}
    return [message for message in checks.run_checks(tags=["redis_locks"]) if message.id in ids]


OUTER = {"BACKEND": WRAPPER, "LOCATION": "default"}

WRONG: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no-location": ("E040", {"LOCATION": ""}, "LOCATION '' isn't in CACHES", "is the alias"),
    "unknown-location": ("E040", {"LOCATION": "row"}, "LOCATION 'row' isn't in CACHES", "'raw'?"),
    "itself": ("E041", {"LOCATION": "default"}, "it wraps itself: 'default' → 'default'", "keeps the values"),
    "circle": ("E041", {"LOCATION": "outer"}, "it wraps itself: 'outer' → 'default' → 'outer'", "keeps the values"),
    "options": ("E042", {"OPTIONS": ["STALE"]}, "OPTIONS must be a dict, not list", ""),
    "unknown-option": ("E042", {"OPTIONS": {"STALLE": 5}}, "unknown option 'STALLE'", "'STALE'?"),
    "locks": ("E042", {"OPTIONS": {"LOCKS": "default"}}, "unknown option 'LOCKS'", "'USING'?"),
    "timeout": ("E042", {"OPTIONS": {"TIMEOUT": 5}}, "unknown option 'TIMEOUT'", "TIMEOUT, beside OPTIONS?"),
    "wait": ("E043", {"OPTIONS": {"WAIT": "5"}}, "WAIT must be seconds or a timedelta, not '5'", ""),
    "early": ("E043", {"OPTIONS": {"EARLY": 2}}, "EARLY is None, a fraction of ttl", ""),
    "refresh": ("E043", {"OPTIONS": {"REFRESH": "later"}}, "REFRESH is one of 'inline', 'thread', 'celery'", ""),
    "by-a-worker": (
        "E043",
        {"OPTIONS": {"REFRESH": "celery"}},
        "a worker can't import the argument of get_or_set",
        "Use 'thread'",
    ),
    "on-timeout": ("E043", {"OPTIONS": {"ON_TIMEOUT": "default"}}, "ON_TIMEOUT is one of 'load', 'raise'", ""),
    "function-timeout": ("E043", {"TIMEOUT": len}, "TIMEOUT is a number of seconds", ""),
    "own-timeout": ("E043", {"TIMEOUT": "long"}, "TIMEOUT is a number of seconds", ""),
    "early-for-ever": ("E043", {"TIMEOUT": None, "OPTIONS": {"EARLY": 0.8}}, "EARLY needs a TIMEOUT", ""),
    "using": ("E044", {"OPTIONS": {"USING": "defualt"}}, "USING 'defualt' isn't in REDIS_LOCKS", "'default'?"),
    "prefix": ("E045", {"KEY_PREFIX": "x"}, "KEY_PREFIX is set at the wrapped cache", "Move it to 'raw'"),
    "in-the-wrong-place": ("E042", {"STALE": 60}, "unknown key 'STALE'", "Move it into OPTIONS."),
    "misspelt": ("E042", {"TIMEOT": 60}, "unknown key 'TIMEOT'", "TIMEOUT"),
}


def test_wrong_entry_has_one_error_with_a_hint(settings: Any) -> None:
    """Without system checks it is raised at the first use."""
    for name, (id, entry, message, hint) in WRONG.items():
        others = {"outer": OUTER} if entry.get("LOCATION") == "outer" else {}
        first, *more = check_messages(settings, entry, **others)
        assert (first.id, first.level) == (f"redis_locks.{id}", checks.ERROR), name
        assert "CACHES['" in first.msg, name
        assert message in first.msg, name
        assert hint in (first.hint or ""), name
        assert len(more) == len(others), f"{name}: a circle has two ends"
        with pytest.raises(InvalidCacheBackendError, match=re.escape(message)):
            cache.get("k")


def test_wrapper_of_a_wrapper_has_an_error(settings: Any) -> None:
    """Each write would be guarded twice."""
    (message,) = check_messages(settings, {}, outer=OUTER)
    assert message.id == "redis_locks.E041"
    assert "CACHES['outer']: 'default' is a wrapper itself" in message.msg


def test_each_of_several_problems_has_an_error(settings: Any) -> None:
    messages = check_messages(
        settings, {"LOCATION": "row", "VERSION": 2, "OPTIONS": {"WIAT": 5, "STALE": -1, "USING": "x"}}
    )
    assert sorted(message.id[-4:] for message in messages) == ["E040", "E042", "E043", "E044", "E045"]


def test_cache_on_another_store_needs_locks(settings: Any) -> None:
    """Only for Redis and locmem caches leases need no REDIS_LOCKS: they are beside the values, or in the process."""
    settings.REDIS_LOCKS = {"other": {"LOCATION": "redis://127.0.0.1:1/1"}}
    (message,) = check_messages(settings, {}, {"BACKEND": FILES, "LOCATION": "there"})
    assert (message.id, message.hint) == ("redis_locks.E044", "There is 'other'.")
    for raw in ({"BACKEND": LOCMEM}, {"BACKEND": REDIS, "LOCATION": "redis://127.0.0.1:1/0"}):
        assert not check_messages(settings, {}, raw), raw


def test_right_entry_has_no_error(settings: Any) -> None:
    options = {"USING": "default", "STALE": 60, "EARLY": XFetch(), "WAIT": 5, "ON_TIMEOUT": "raise"}
    assert not check_messages(settings, {"TIMEOUT": 600, "OPTIONS": options})
    assert not check_messages(
        settings, {"TIMEOUT": None, "OPTIONS": {"EARLY": None, "MAX_HOLD": None, "ERROR_TTL": None}}
    )
    assert not check_messages(settings, {}, other={"BACKEND": "there.is.no.such.Cache"})


def test_sessions_in_a_stampede_cache_have_a_warning(settings: Any) -> None:
    """[S43] A session has no concurrent loads, but each save would be a guarded write."""
    for engine in ("django.contrib.sessions.backends.cache", CACHED_DB):
        settings.SESSION_ENGINE = engine
        (message,) = check_messages(settings, {})
        assert (message.id, message.level) == ("redis_locks.W046", checks.WARNING), engine
        assert "SESSION_CACHE_ALIAS = 'raw'" in message.hint
    settings.SESSION_CACHE_ALIAS = "raw"
    assert not check_messages(settings, {})
    settings.SESSION_ENGINE, settings.SESSION_CACHE_ALIAS = SIGNED, "default"
    assert not check_messages(settings, {})


def test_redis_cache_with_replicas_has_a_warning(settings: Any) -> None:
    """[S8] Django's cache writes to the first server and reads from another one."""
    for location in ("redis://127.0.0.1:1/0,redis://127.0.0.1:2/0", ["redis://a", "redis://b"]):
        (message,) = check_messages(settings, {}, {"BACKEND": REDIS, "LOCATION": location})
        assert (message.id, message.level) == ("redis_locks.W047", checks.WARNING), location
    assert not check_messages(settings, {}, {"BACKEND": REDIS, "LOCATION": ["redis://127.0.0.1:1/0"]})


def test_locks_in_the_database_of_the_wrapped_cache_have_a_warning(settings: Any) -> None:
    """[S31] `clear()` of the wrapper would flush the locks, too."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}}
    check_messages(settings, {}, {"BACKEND": REDIS, "LOCATION": "redis://127.0.0.1:1/0"})
    assert "redis_locks.W010" in {message.id for message in checks.run_checks(tags=["redis_locks"])}

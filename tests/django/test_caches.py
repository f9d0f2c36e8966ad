"""`CACHE`: the connection of a cache is borrowed, its client isn't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache.backends.redis import RedisCache
from django.core.checks import run_checks

from django_redis_locks import InvalidLockBackend, locks
from tests.django.helpers import in_thread
from tools.redis_server import RedisServer

CORE = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
URL = "redis://127.0.0.1:6379/1"
OTHER = "redis://127.0.0.1:6380/2"


def borrow(settings: Any, **cache: Any) -> Any:
    """The settings of an alias that borrows from this cache."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM}, "shared": cache}
    settings.REDIS_LOCKS = {"default": {"CACHE": "shared"}}
    return locks["default"].settings


@pytest.mark.parametrize("backend", [CORE, DJANGO_REDIS])
class TestWhatIsBorrowed:
    def test_first_server_of_a_list_is_borrowed(self, settings: Any, backend: str) -> None:
        """[D33] A list is a primary and its replicas: locks go to the primary only."""
        for location in (URL, [URL], [URL, OTHER], (URL, OTHER), f"{URL},{OTHER}", f"{URL};{OTHER}"):
            assert borrow(settings, BACKEND=backend, LOCATION=location).location == URL, location

    def test_options_of_the_alias_win_over_those_of_the_cache(self, settings: Any, backend: str) -> None:
        options = {"client_name": "cache"}
        options = options if backend == CORE else {"CONNECTION_POOL_KWARGS": options}
        assert borrow(settings, BACKEND=backend, LOCATION=URL, OPTIONS=options).options == {"client_name": "cache"}
        own = {"client_name": "locks", "socket_timeout": 1}
        settings.REDIS_LOCKS = {"default": {"CACHE": "shared", "OPTIONS": own}}
        assert locks["default"].settings.options == own

    def test_lock_over_a_borrowed_connection_excludes_others(
        self, settings: Any, backend: str, make_server: Callable[..., RedisServer]
    ) -> None:
        """With W010; django-redis needn't be installed. A password among the options is borrowed, too. [D36] The pool isn't:
        it may have one connection only, and two locks at a time work all the same."""
        server = make_server(requirepass="hunter2")
        pool = {"pool_class": "redis.BlockingConnectionPool", "timeout": 1, "max_connections": 1}
        options = {"password": "hunter2", **pool} if backend == CORE else {"PASSWORD": "hunter2"}
        borrow(settings, BACKEND=backend, LOCATION=f"redis://127.0.0.1:{server.port}/0", OPTIONS=options)
        assert [message.id for message in run_checks(tags=["redis_locks"])] == ["redis_locks.W010"]
        with locks.lock("order:1"):
            assert in_thread(lambda: locks.lock("order:1").acquire(blocking=False)) is None
            in_thread(lambda: locks.lock("order:2").acquire().release())
        assert "hunter2" not in repr(locks["default"])


class TestOptions:
    def test_options_of_djangos_cache_that_concern_the_connection_are_borrowed(self, settings: Any) -> None:
        """[D36] Pool, parser and serializer are the cache's own."""
        url = URL.replace("redis:", "rediss:")
        for options, expected in (
            ({"username": "u", "password": "p"}, {"username": "u", "password": "p"}),
            ({"ssl_ca_certs": "/ca.pem", "socket_timeout": 3}, {"ssl_ca_certs": "/ca.pem", "socket_timeout": 3}),
            ({"pool_class": "redis.BlockingConnectionPool", "timeout": 5, "max_connections": 9}, {}),
            ({"parser_class": "x.Y", "serializer": "x.Z"}, {}),
        ):
            assert borrow(settings, BACKEND=CORE, LOCATION=url, OPTIONS=options).options == expected

    def test_options_of_django_redis_that_concern_the_connection_are_borrowed(self, settings: Any) -> None:
        """[D34] They have names of their own there; its IGNORE_EXCEPTIONS must never reach a lock."""
        for options, expected in (
            ({"PASSWORD": "p", "SOCKET_TIMEOUT": 3}, {"password": "p", "socket_timeout": 3}),
            ({"SOCKET_CONNECT_TIMEOUT": 4}, {"socket_connect_timeout": 4}),
            ({"CONNECTION_POOL_KWARGS": {"max_connections": 9, "username": "u"}}, {"username": "u"}),
            ({"CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool", "IGNORE_EXCEPTIONS": True}, {}),
            ({"CLIENT_CLASS": "django_redis.client.DefaultClient", "SERIALIZER": "x.Y", "PARSER_CLASS": "x.Z"}, {}),
            ({"COMPRESSOR": "x.Y", "LOG_IGNORED_EXCEPTIONS": True, "CLOSE_CONNECTION": True}, {}),
        ):
            assert borrow(settings, BACKEND=DJANGO_REDIS, LOCATION=URL, OPTIONS=options).options == expected


class OwnCache(RedisCache):
    """A project's own cache, on Django's."""


class TestRefusals:
    def test_cache_that_is_no_plain_redis_is_refused(self, settings: Any) -> None:
        """Where a sharded client would put a lock can't be known."""
        clients = [f"django_redis.client.{name}" for name in ("ShardClient", "SentinelClient", "HerdClient")]
        for cache in (
            {"BACKEND": LOCMEM},
            {"BACKEND": "django.core.cache.backends.dummy.DummyCache", "LOCATION": URL},
            {"BACKEND": "nowhere.Cache", "LOCATION": URL},
            {"BACKEND": "pathlib.Path", "LOCATION": URL},
            {"LOCATION": URL},
            {"BACKEND": CORE},
            {"BACKEND": CORE, "LOCATION": []},
            *({"BACKEND": DJANGO_REDIS, "LOCATION": URL, "OPTIONS": {"CLIENT_CLASS": name}} for name in clients),
        ):
            with pytest.raises(
                InvalidLockBackend, match=r"CACHE 'shared' isn't a plain Redis cache\. Set LOCATION instead"
            ):
                borrow(settings, **cache)

    def test_url_of_a_cache_is_checked_and_its_password_is_hidden(self, settings: Any) -> None:
        """A project's own cache on Django's is a Redis cache."""
        own = f"{OwnCache.__module__}.{OwnCache.__qualname__}"
        assert borrow(settings, BACKEND=own, LOCATION=URL).location == URL
        with pytest.raises(InvalidLockBackend) as raised:
            borrow(settings, BACKEND=CORE, LOCATION="http://user:hunter2@example.org/0")
        assert "is no URL of a Redis server" in str(raised.value)
        assert "hunter2" not in str(raised.value)
        settings.REDIS_LOCKS = {"default": {"CACHE": "missing"}}
        with pytest.raises(InvalidLockBackend, match="CACHE 'missing' isn't in CACHES"):
            locks["default"]

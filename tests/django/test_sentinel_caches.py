"""CACHE with a django-redis cache that finds its master by sentinels."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.core.checks import run_checks

from django_redis_locks import LockLost, locks
from tests.django.test_settings import DJANGO_REDIS, LOCMEM_CACHE, borrow
from tools.redis_sentinel import SERVICE, SentinelGroup

CLIENT = {"CLIENT_CLASS": "django_redis.client.SentinelClient"}
FACTORY = {"CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory"}
HOSTS = {"SENTINELS": [("s1", 26379), ("::1", 5)]}


@pytest.mark.parametrize("way", [CLIENT, FACTORY], ids=["client", "factory"])
def test_location_and_options_are_those_of_the_master(settings: Any, way: dict[str, str]) -> None:
    """[D34] The URL of a replica is skipped. Sentinels have options of their own."""
    own = {"USERNAME": "u", "PASSWORD": "p", "SENTINEL_KWARGS": {"password": "watch"}}
    for location, expected in (
        ("redis://mymaster/2", "redis+sentinel://s1:26379,[::1]:5/mymaster/2"),
        ("redis://mymaster/2?is_master=1", "redis+sentinel://s1:26379,[::1]:5/mymaster/2"),
        ("rediss://me:a%40b@mymaster/", "rediss+sentinel://me:a%40b@s1:26379,[::1]:5/mymaster"),
        (["redis://m?is_master=0", "redis://m/1?db=3"], "redis+sentinel://s1:26379,[::1]:5/m/1?db=3"),
    ):
        borrowed = borrow(settings, BACKEND=DJANGO_REDIS, LOCATION=location, OPTIONS={**way, **HOSTS, **own})
        assert borrowed.location == expected
        sentinel_kwargs = {"ssl": False, "password": "watch"}
        assert borrowed.options == {"username": "u", "password": "p", "sentinel_kwargs": sentinel_kwargs}


def test_cache_without_readable_sentinels_is_E009(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": LOCMEM_CACHE}, "shared": {"BACKEND": DJANGO_REDIS}}
    settings.REDIS_LOCKS = {"default": {"CACHE": "shared"}}
    for options in (CLIENT, {**CLIENT, "SENTINELS": []}, {**CLIENT, "SENTINELS": ["s1:26379"]}):
        settings.CACHES["shared"] |= {"LOCATION": "redis://mymaster/0", "OPTIONS": options}
        (message,) = run_checks(tags=["redis_locks"])
        assert message.id == "redis_locks.E009"


def test_locks_and_cache_use_one_master(settings: Any, sentinel_group: SentinelGroup) -> None:
    """With W010: cache.clear() deletes the locks."""
    sentinels = [("127.0.0.1", sentinel.port) for sentinel in sentinel_group.sentinels]
    settings.CACHES = {
        "default": {
            "BACKEND": DJANGO_REDIS,
            "LOCATION": f"redis://{SERVICE}/1",
            "OPTIONS": {**CLIENT, **FACTORY, "SENTINELS": sentinels},
        }
    }
    settings.REDIS_LOCKS = {"default": {"CACHE": "default"}}
    assert [message.id for message in run_checks(tags=["redis_locks"])] == ["redis_locks.W010"]
    grant = locks.lock("order:1").acquire()
    cache.clear()
    with pytest.raises(LockLost):
        grant.release()

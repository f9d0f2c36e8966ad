"""The commands and the admin name the store and its servers, and the server that has a lock."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from django.utils import translation

from django_redis_locks import locks
from tests.django.admin_site import LIST, VIEW, client_with_permissions, lock_url, urlpatterns, visible_text
from tests.django.test_console import call
from tests.probes.client import slot_of
from tests.probes.django import store_text
from tools.redis_cluster import RedisCluster
from tools.redis_sentinel import SentinelGroup

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db

KEY = f"lock:{{{crc32(b'order:1') % 256}}}:k:order:1"


def assert_named(store: str, of_lock: str) -> None:
    """In the list, the numbers and the page of a held lock."""
    with locks.lock("order:1"):
        assert f"default: {store}" in call("list").out.splitlines()
        assert any(line.split(maxsplit=1) == ["store", store] for line in call("stats").out.splitlines())
        assert any(line.split(maxsplit=1) == ["store", of_lock] for line in call("show", "order:1").out.splitlines())
        client = client_with_permissions(VIEW)
        assert f">{store}<" in visible_text(client.get(LIST))
        assert f">{of_lock}<" in visible_text(client.get(lock_url("order:1")))


def test_one_server_is_named_with_its_database_and_without_the_login(redis_locks: str, redis_url: str) -> None:
    assert_named(f"Redis {redis_url.removeprefix('redis://')}", f"Redis {redis_url.removeprefix('redis://')}")


def test_master_that_the_sentinels_name_is_shown(
    settings: Any, sentinel_group: SentinelGroup, sentinel_location: str
) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": sentinel_location}}
    name = f"Redis Sentinel, master 127.0.0.1:{sentinel_group.master.port} of {sentinel_location.split('/')[3]}"
    assert_named(name, name)


def test_cluster_is_named_with_its_masters_and_the_node_of_a_lock(
    settings: Any, redis_cluster: RedisCluster, cluster_location: str
) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": cluster_location}}
    with locks.lock("order:1"):
        owner = redis_cluster.owner(slot_of(KEY))
        store = call("show", "order:1", "--json").document["store"]
    assert (store["kind"], len(store["servers"]), store["asked"]) == ("cluster", 3, [f"127.0.0.1:{owner.port}"])
    assert_named("Redis Cluster, 3 masters", f"Redis Cluster, 3 masters; this lock: 127.0.0.1:{owner.port}")


def test_redlock_is_named_with_the_number_of_its_servers(settings: Any, redlock_location: list[str]) -> None:
    backend = "django_redis_locks.backends.redlock.RedlockBackend"
    settings.REDIS_LOCKS = {"default": {"BACKEND": backend, "LOCATION": redlock_location}}
    assert_named("Redlock, 5 servers", "Redlock, 5 servers")


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "Redis Cluster, 3 masters, 2 reachable"), ("zh-hans", "Redis Cluster, 3 个主节点, 2 个可访问")],
)
def test_servers_that_are_away_are_counted(language: str, text: str) -> None:
    with translation.override(language):
        assert store_text("cluster", "abc", away=1) == text

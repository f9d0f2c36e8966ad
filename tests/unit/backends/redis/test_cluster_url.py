"""LOCATION of a Cluster: its identity, its form without logins, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.cluster import ClusterBackend
from django_redis_locks.backends.redis.cluster_url import CLUSTER_SCHEMES
from django_redis_locks.backends.redis.urls import mask_password

IDENTITIES = {
    "redis+cluster://n1": "cluster:n1:6379/0",
    "redis+cluster://N2:7000,n1:7000/": "cluster:n1:7000,n2:7000/0",
    "rediss+cluster://me:p,w@n1:7000,n2:7000/0": "cluster:n1:7000,n2:7000/0",
    "valkey+cluster://[::1],[fe80::2]:5?socket_timeout=1": "cluster:[::1]:6379,[fe80::2]:5/0",
}
MASKED = {
    "redis+cluster://n1,n2:7": "redis+cluster://n1:6379,n2:7",
    "valkeys+cluster://me:secret@n1:5,n2/0": "valkeys+cluster://me:***@n1:5,n2:6379/0",
    "redis+cluster://secret@n1": "redis+cluster://***@n1:6379",
    "redis+cluster://me:secret@n1?password=secret": "redis+cluster://me:***@n1:6379",
    "redis+cluster://me:secret@n1/3": "redis+cluster://me:***@n1/3",
    "redis+cluster://me:secret@n1,you:secret@n2": "redis+cluster://me:***@n2",
}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("redis+cluster://n1,n2/3", {}, "a Cluster has only database 0"),
    ("redis+cluster://n1,n2?db=3", {}, "a Cluster has only database 0"),
    ("redis+cluster://n1,n2", {"db": 3}, "a Cluster has only database 0"),
    ("redis+cluster://n1/x", {}, "a Cluster has only database 0"),
    ("redis+cluster://", {}, "node without a host"),
    ("redis+cluster://n1,,n2", {}, "node without a host"),
    ("redis+cluster://n1:port", {}, "node with an invalid address"),
    ("redis+cluster://me:secret@n1,you:secret@n2", {}, "one login"),
    ("redis+cluster://me:sec/ret@n1", {}, "percent-encoded"),
    ("redis+clusters://n1", {}, r"its scheme is one of .*redis\+cluster"),
    ("redis+cluster://n1", {"sokcet_timeout": 1}, "unknown argument 'sokcet_timeout'; did you mean 'socket_timeout'"),
    ("redis+cluster://n1", {"address_remap": "n2"}, "option address_remap is callable, not str"),
    ("redis+cluster://n1", {"replicas": -1}, "replicas is a whole number"),
]


@pytest.mark.parametrize(("location", "identity"), IDENTITIES.items())
def test_nodes_make_the_identity(location: str, identity: str) -> None:
    backend: Any = RedisBackend(location, {})
    assert isinstance(backend, ClusterBackend)
    assert (backend.identity, backend.buckets) == (identity, 256)


@pytest.mark.parametrize("scheme", CLUSTER_SCHEMES)
def test_nodes_have_the_login_and_the_encryption_of_the_location(scheme: str) -> None:
    backend: Any = RedisBackend(f"{scheme}://me:secret@n1:5,n2", {"socket_timeout": 1.5})
    connection = backend.table.node_at(("n3", 7))._make_resp2()
    assert (connection.host, connection.port, connection.credential_provider) == ("n3", 7, None)
    assert (connection.username, connection.password, connection.socket_timeout) == ("me", "secret", 1.5)
    assert isinstance(connection, redis.SSLConnection) is scheme.startswith(("rediss", "valkeys"))


@pytest.mark.parametrize(("location", "masked"), MASKED.items())
def test_no_login_is_shown(location: str, masked: str) -> None:
    assert mask_password(location) == masked


@pytest.mark.parametrize(("location", "options", "problem"), WRONG)
def test_wrong_settings_are_named_in_one_sentence(location: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem) as caught:
        RedisBackend(location, options)
    assert "secret" not in str(caught.value)

"""`check --deploy`, `facts` and the commands on a Cluster."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Info
from django.core.management import call_command

from django_redis_locks import InvalidLockBackend, diagnosis, locks
from tests.django.test_server_checks import ids, run_check
from tools.redis_cluster import RedisCluster

PATIENT = 5.0
"""A BACKEND_WAIT that outlasts a failover."""


def test_facts_are_those_of_all_masters(settings: Any, redis_cluster: RedisCluster, capsys: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_cluster.location()}}
    facts = diagnosis.facts()
    assert (facts.address, facts.mode) == (redis_cluster.location(), "cluster")
    assert {(master.address, master.replicas) for master in facts.members} == {
        (master.url(), 1) for master in redis_cluster.masters
    }
    assert (facts.unreachable, facts.denied) == ((), ())
    assert (facts.failover_after, facts.full_coverage) == (1.5, False)
    call_command("redis_locks", "ping")
    shown = capsys.readouterr().out
    assert all(master.address in shown for master in facts.members)


def test_facts_of_the_masters_are_shown_one_by_one_where_they_differ(
    settings: Any, redis_cluster: RedisCluster, capsys: Any
) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_cluster.location()}}
    differs, *others = redis_cluster.masters
    differs.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        call_command("redis_locks", "stats")
        first = capsys.readouterr().out
    finally:
        differs.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert f"redis://127.0.0.1:{differs.port}/0: allkeys-lru" in first
    assert all(f"redis://127.0.0.1:{other.port}/0: noeviction" in first for other in others)
    call_command("redis_locks", "stats")
    assert capsys.readouterr().out.count("noeviction") == 1


def test_healthy_cluster_has_one_note(settings: Any, redis_cluster: RedisCluster) -> None:
    """W107, as its nodes keep no file."""
    (message,) = run_check(settings, redis_cluster.location(), BACKEND_WAIT=PATIENT)
    assert isinstance(message, Info)
    assert ids([message]) == ["W107"]


def test_cluster_that_one_failure_stops_is_W114_and_W115(settings: Any, redis_executable: None) -> None:
    """And a failover that takes longer than a lease is W113."""
    with RedisCluster({"cluster-require-full-coverage": "yes"}, replicas=0, node_timeout=15000) as cluster:
        found = run_check(settings, cluster.location(), EXPIRE=10, BACKEND_WAIT=20)
        messages = {message.id.rpartition(".")[2]: message.msg for message in found}
        assert sorted(messages) == ["W107", "W113", "W114", "W115"]
        assert all(f"127.0.0.1:{node.port}" in messages["W115"] for node in cluster.nodes)
        assert "17 s, and EXPIRE is 10 s" in messages["W113"]
        away = cluster.masters[2]
        away.kill()
        found = run_check(settings, cluster.location(), BACKEND_WAIT=20)
        assert any(str(away.port) in message.msg for message in found if "W101" in str(message.id))


@pytest.mark.parametrize(
    ("path", "problem"), [("/3", "a Cluster has only database 0"), ("/0?db=1", "a Cluster has only database 0")]
)
def test_database_of_a_cluster_is_E005(settings: Any, path: str, problem: str) -> None:
    assert ids(run_check(settings, f"redis+cluster://n1,n2{path}")) == ["E005"]
    with pytest.raises(InvalidLockBackend, match=problem):
        locks.lock("a")


def test_url_of_one_node_names_the_scheme(settings: Any, redis_cluster: RedisCluster) -> None:
    """In the check, and in the error of a key in a slot of another node."""
    url = redis_cluster.masters[1].url()
    (hint,) = [str(message.hint) for message in run_check(settings, url) if "W105" in str(message.id)]
    assert "redis+cluster://" in hint
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_cluster.masters[1].url()}}
    with pytest.raises(Exception, match=r"MOVED.*begin LOCATION with redis\+cluster://"):
        locks.lock("a").acquire()


def test_url_of_a_cluster_that_is_none_names_the_scheme(settings: Any, redis_url: str) -> None:
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": redis_url.replace("redis://", "redis+cluster://"), "BACKEND_WAIT": 0}
    }
    with pytest.raises(Exception, match="begin LOCATION with redis://"):
        locks.lock("a").acquire()


def test_every_lock_of_the_list_is_shown_and_released(
    settings: Any, redis_cluster: RedisCluster, capsys: Any, cluster_location: str
) -> None:
    """By the command, in keys of all nodes."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": cluster_location}}
    grants = [locks.lock(f"order:{number}").acquire() for number in range(30)]
    assert all(master.command("DBSIZE") > 0 for master in redis_cluster.masters)
    call_command("redis_locks", "list", "--limit", "50")
    shown = capsys.readouterr().out
    assert all(f"order:{number} " in shown for number in range(30))
    for grant in grants:
        grant.release()

"""`check --deploy` and `facts` on a master that sentinels name."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Info
from django.core.management import call_command

from django_redis_locks import LockBackendError, diagnosis, locks
from tests.django.test_server_checks import ids, run_check
from tools.redis_sentinel import SentinelGroup
from tools.redis_server import RedisServer

PATIENT = 5.0
"""A BACKEND_WAIT that outlasts a failover of the group."""


def test_facts_name_the_location_and_the_node(settings: Any, sentinel_group: SentinelGroup, capsys: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": sentinel_group.location()}}
    facts = diagnosis.facts()
    assert facts.address == sentinel_group.location()
    assert facts.node == f"127.0.0.1:{sentinel_group.master.port}"
    assert (facts.mode, facts.role) == ("sentinel", "master")
    assert (facts.other_sentinels, facts.replicas, facts.min_replicas) == (2, 2, 0)
    call_command("redis_locks", "ping")
    assert f"{facts.address} ({facts.node})" in capsys.readouterr().out


def test_healthy_group_has_two_notes(settings: Any, sentinel_group: SentinelGroup) -> None:
    """W107, as the master keeps no file, and W112, as a failover may lose locks."""
    messages = run_check(settings, sentinel_group.location(), BACKEND_WAIT=PATIENT)
    assert ids(messages) == ["W107", "W112"]
    assert all(isinstance(message, Info) for message in messages)
    assert f"127.0.0.1:{sentinel_group.master.port}" in messages[1].msg


def test_lone_sentinel_is_W110_and_a_master_without_replica_W111(settings: Any, redis_executable: None) -> None:
    """Neither could survive a failure. A replica that the master requires ends the note about lost locks."""
    with SentinelGroup({"min-replicas-to-write": 1}, replicas=0, sentinels=1) as group:
        messages = run_check(settings, group.location(), BACKEND_WAIT=PATIENT)
    assert ids(messages) == ["W107", "W110", "W111"]
    assert "know 0 others" in messages[1].msg
    assert "no replica that is online" in messages[2].msg


def test_fewer_replicas_than_the_option_asks_for_is_W111(settings: Any, sentinel_group: SentinelGroup) -> None:
    """No lock could be acquired. Without sentinels, too."""
    for location in (sentinel_group.location(), sentinel_group.master.url()):
        for replicas, found in ((2, []), (3, ["W111"])):
            messages = run_check(settings, location, OPTIONS={"replicas": replicas}, BACKEND_WAIT=PATIENT)
            assert [each for each in ids(messages) if each == "W111"] == found


def test_failover_that_outlasts_waits_and_leases_is_W113(settings: Any, sentinel_group: SentinelGroup) -> None:
    """The group takes 0.5 s and the election."""
    for entry, text in (({}, "BACKEND_WAIT is 2 s."), ({"EXPIRE": 2, "BACKEND_WAIT": 2.5}, "EXPIRE is 2 s.")):
        *_, note = run_check(settings, sentinel_group.location(), **entry)
        assert ids([note]) == ["W113"]
        assert isinstance(note, Info)
        assert f"a failover takes about 2.5 s, and {text}" in note.msg


def test_sentinels_that_cannot_be_used_are_W110(
    settings: Any, sentinel_group: SentinelGroup, redis_server: RedisServer, closed_port: int
) -> None:
    """Locks work by the others, so no call fails. Each is named with its reason, and no password."""
    with RedisServer({"requirepass": "hunter2"}, arguments=["--sentinel"]) as guarded:
        bad = ",".join(f"127.0.0.1:{port}" for port in (guarded.port, redis_server.port, closed_port))
        location = sentinel_group.location().replace("//", f"//{bad},")
        messages = run_check(settings, location, BACKEND_WAIT=PATIENT)
    (message,) = (each for each in messages if ids([each]) == ["W110"])
    assert f"{guarded.port}: Authentication required" in message.msg
    assert f"{redis_server.port}: this server is no sentinel" in message.msg
    assert f"{closed_port}: Error 111" in message.msg
    assert str(sentinel_group.sentinels[0].port) not in message.msg.rpartition("/mymaster")[2]


def test_sentinel_that_is_given_as_a_server_is_recognised(settings: Any, sentinel_group: SentinelGroup) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": sentinel_group.sentinels[0].url()}}
    with pytest.raises(LockBackendError, match=r"If this is a sentinel, LOCATION is redis\+sentinel://"):
        locks.lock("a").acquire()


def test_unknown_service_is_W101_with_the_sentinels(settings: Any, sentinel_group: SentinelGroup) -> None:
    location = sentinel_group.location().replace("mymaster", "yourmaster")
    (message,) = run_check(settings, location.replace("//", "//me:hunter2@"))
    assert ids([message]) == ["W101"]
    assert "no sentinel knows the service 'yourmaster'" in message.msg
    assert all(f":{sentinel.port}: unknown service" in message.msg for sentinel in sentinel_group.sentinels)
    assert message.hint == "Correct the name of the service after the sentinels in LOCATION."
    assert "hunter2" not in message.msg


def test_sentinels_that_are_away_are_W101(settings: Any, closed_port: int) -> None:
    (message,) = run_check(settings, f"redis+sentinel://127.0.0.1:{closed_port}/mymaster")
    assert ids([message]) == ["W101"]
    assert "no sentinel answers" in message.msg
    assert "Start the sentinels" in str(message.hint)

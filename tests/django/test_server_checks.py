"""`check --deploy` queries the servers: each finding has an id and a hint; hidden information is no finding."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage, run_checks

from django_redis_locks import clock, diagnosis, locks
from tests.django.helpers import MEMORY
from tests.django.test_settings import CORE_CACHE
from tests.probes.django import commands_asked_for, report_server
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]

APPENDS = {"appendonly": "yes", "appendfsync": "everysec"}
"""Settings of a server without findings."""


def run_check(settings: Any, *urls: str, deploy: bool = True, **more: Any) -> list[CheckMessage]:
    settings.REDIS_LOCKS = {
        "default" if number == 0 else f"other{number}": {"LOCATION": url, **more} for number, url in enumerate(urls)
    }
    return run_checks(tags=["redis_locks"], include_deployment_checks=deploy)


def ids(messages: list[CheckMessage]) -> list[str]:
    return [str(message.id).removeprefix("redis_locks.") for message in messages]


@pytest.fixture
def server(make_server: Make) -> RedisServer:
    return make_server(**APPENDS)


def test_check_without_deploy_sends_no_request(settings: Any, server: RedisServer, closed_port: int) -> None:
    """Each runserver, migrate and Celery worker runs the checks without --deploy. A good server has no message."""
    url = f"redis://127.0.0.1:{closed_port}/0"
    assert run_check(settings, url, deploy=False) == []
    assert ids(run_check(settings, url)) == ["W101"]
    assert run_check(settings, server.url()) == []


def test_unreachable_server_does_not_hide_findings_of_others(settings: Any, store_down: str, make_server: Make) -> None:
    """[D57] Both are reported, without passwords."""
    server = make_server(maxmemory_policy="allkeys-lru", **APPENDS)
    messages = run_check(settings, store_down, server.url())
    assert ids(messages) == ["W101", "W102"]
    assert "can't reach redis://operator:***@127.0.0.1" in messages[0].msg
    assert "Start that server" in str(messages[0].hint)
    assert "other1" in messages[1].msg
    assert "hunter2" not in f"{messages}"


def test_check_gives_up_a_silent_server_after_two_seconds(settings: Any, server: RedisServer) -> None:
    """With any timeouts of the alias."""
    server.pause()
    began = clock.now()
    messages = run_check(settings, server.url(), OPTIONS={"socket_timeout": 60, "socket_connect_timeout": 60})
    server.resume()
    assert ids(messages) == ["W101"]
    assert clock.now() - began < diagnosis.DEFAULT_TIMEOUT + 10


def test_server_that_is_no_redis_is_W101(settings: Any) -> None:
    """With any reply it is a warning instead of a traceback."""

    def serve(answer: bytes) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    while asked := connection.recv(65536):
                        connection.sendall(answer * max(1, asked.count(b"*")))

    http = b"HTTP/1.1 400 Bad\r\n\r\n"
    for answer in (b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*2\r\n*0\r\n$1\r\nx\r\n", http):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=serve, args=[answer], daemon=True).start()
            (message,) = run_check(settings, f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
            listening.shutdown(socket.SHUT_RDWR)
        assert message.id == "redis_locks.W101", answer


def test_wrong_login_is_W101_with_a_hint(settings: Any, make_server: Make) -> None:
    server = make_server(requirepass="right", **APPENDS)
    (message,) = run_check(settings, f"redis://:wrong@127.0.0.1:{server.port}/0")
    assert message.id == "redis_locks.W101"
    assert "WRONGPASS" in message.msg
    assert "Correct the login in LOCATION" in str(message.hint)
    (message,) = run_check(settings, f"redis://127.0.0.1:{server.port}/0")
    assert "NOAUTH" in message.msg


def test_redis_older_than_6_2_is_warned_about(
    settings: Any, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valkey has version numbers of its own, besides that of the compatible Redis."""
    report_server(monkeypatch, server_name="redis", redis_version="6.0.16")
    (message,) = run_check(settings, server.url())
    assert message.id == "redis_locks.W103"
    assert "Redis 6.0.16" in message.msg
    report_server(monkeypatch, redis_version="6.2.0")
    assert run_check(settings, server.url()) == []
    report_server(monkeypatch, server_name="valkey", valkey_version="8.1.0", redis_version="7.2.4")
    assert run_check(settings, server.url()) == []
    facts = diagnosis.facts()
    assert (facts.server, facts.version) == ("Valkey", "8.1.0")


def test_replica_is_W104_eviction_policy_W102_and_cluster_mode_W105(
    settings: Any, server: RedisServer, make_server: Make, cluster_url: str
) -> None:
    """[D32] [D33] A replica has no other finding, because it replies to reads. Policies volatile-* evict keys with a
    TTL, as locks have."""
    replica = make_server(replicaof=f"127.0.0.1 {server.port}", **APPENDS)
    assert ids(run_check(settings, replica.url())) == ["W104"]
    server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    (message,) = run_check(settings, server.url())
    assert message.id == "redis_locks.W102"
    assert "volatile-lru" in message.msg
    assert "noeviction" in str(message.hint)
    assert "W105" in ids(run_check(settings, cluster_url))


NEEDED = commands_asked_for()


def test_missing_right_is_named_and_granting_it_is_enough(settings: Any, server: RedisServer) -> None:
    """Without INFO and CONFIG, which the documented rights don't include, eviction and persistence aren't checked."""
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    server.command("CONFIG", "SET", "appendonly", "no")
    channel = ("~lock:*", "resetchannels", "&lock:*", "-@all")
    for right in NEEDED:
        if right == "ping":
            continue
        rights = [f"+{name}" for name in NEEDED if name != right]
        server.command("ACL", "SETUSER", "app", "reset", "on", ">pw", *channel, *rights)
        (message,) = run_check(settings, f"redis://app:pw@127.0.0.1:{server.port}/0")
        assert message.id == "redis_locks.W106", right
        assert message.hint == f"ACL SETUSER <user> +{right}"
        server.command("ACL", "SETUSER", "app", f"+{right}")
        assert run_check(settings, f"redis://app:pw@127.0.0.1:{server.port}/0") == [], right


def test_denied_keys_and_channels_are_named(settings: Any, server: RedisServer) -> None:
    """With any names of user and prefix, which may be part of the server's reply."""
    for name in ("app", "key", "channel"):
        url = f"redis://{name}:pw@127.0.0.1:{server.port}/0"
        server.command("ACL", "SETUSER", name, "reset", "on", ">pw", "~other:*", "resetchannels", "+@all")
        (message,) = run_check(settings, url, KEY_PREFIX=name)
        assert message.hint == f"ACL SETUSER <user> ~{name}:* &{name}:*"
        server.command("ACL", "SETUSER", name, "allkeys", "allchannels", "-get")
        (message,) = run_check(settings, url, KEY_PREFIX=name)
        assert message.hint == "ACL SETUSER <user> +get"


def test_missing_command_of_a_server_is_W106(settings: Any, make_server: Make) -> None:
    """Managed servers rename commands; no ACL shows that."""
    server = make_server(rename_command="EVALSHA weg", **APPENDS)
    (message,) = run_check(settings, server.url())
    assert message.id == "redis_locks.W106"
    assert "EVALSHA" in message.msg
    assert "ACL SETUSER" not in str(message.hint)


def test_check_changes_nothing_on_the_server(settings: Any, server: RedisServer) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": server.url()}}
    with locks.lock("a"):
        before = sorted(server.command("KEYS", "*"))
        diagnosis.facts()
        assert sorted(server.command("KEYS", "*")) == before
        assert server.command("PUBSUB", "CHANNELS") == []


def test_missing_persistence_is_W107_at_level_info(settings: Any, server: RedisServer) -> None:
    """So that --fail-level WARNING succeeds."""
    for name, value, said in (("appendfsync", "no", "appendfsync no"), ("appendonly", "no", "no append-only file")):
        server.command("CONFIG", "SET", name, value)
        (message,) = run_check(settings, server.url())
        assert message.id == "redis_locks.W107"
        assert said in message.msg
        assert message.level == checks.INFO


def test_clock_that_is_far_off_is_W108(settings: Any, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H1] Fences derive from the server's clock, and leases end when it jumps forward."""
    wall = clock.wall
    for ahead, said in ((3600.0, "3600 s ahead of"), (-60.0, "60 s behind"), (5.0, "")):
        monkeypatch.setattr(clock, "wall", lambda: wall() - ahead)  # noqa: B023 - called at once
        messages = run_check(settings, server.url())
        assert ids(messages) == (["W108"] if said else [])
        assert all(said in message.msg for message in messages)


def cached(settings: Any, url: str) -> None:
    settings.CACHES = {"default": {"BACKEND": CORE_CACHE, "LOCATION": url}}


def test_cache_in_the_same_database_by_another_name_is_W109(
    settings: Any, server: RedisServer, closed_port: int
) -> None:
    """[D31] Not for another database. With the same host name it is W010. An unreachable cache isn't reported."""
    cached(settings, f"redis://localhost:{server.port}/0")
    assert run_check(settings, server.url(), deploy=False) == []
    (message,) = run_check(settings, server.url())
    assert message.id == "redis_locks.W109"
    assert "the cache 'default'" in message.msg
    assert f"localhost:{server.port}" in message.msg
    assert run_check(settings, server.url(db=1)) == []
    cached(settings, server.url())
    assert ids(run_check(settings, server.url())) == ["W010"]
    cached(settings, f"redis://127.0.0.1:{closed_port}/0")
    assert run_check(settings, server.url()) == []


def test_alias_with_wrong_settings_or_in_memory_is_skipped(settings: Any, server: RedisServer) -> None:
    settings.DEBUG = True
    wrong = {"default": {"LOCATION": server.url()}, "payments": {"LOCATION": "nowhere"}}
    for table, expected in ((wrong, ["E005"]), (["wrong"], ["E001"]), ({"default": {"BACKEND": MEMORY}}, [])):
        settings.REDIS_LOCKS = table
        assert ids(run_checks(tags=["redis_locks"], include_deployment_checks=True)) == expected

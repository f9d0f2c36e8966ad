"""The subscriber after lost connections, silent servers, denied rights and forks: it reconnects by itself."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks.backends.redis import subscriber as subscriber_module
from django_redis_locks.backends.redis.pubsub_reader import PubSubReader
from django_redis_locks.backends.redis.subscriber import RedisSubscriber
from tests.forks import in_child
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.unit.backends.redis.subscribers import LOCKS, TICK, RecordingHandler, opened, subscriptions
from tests.waiting import eventually
from tools.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("short_polls")

Make = Callable[..., RedisSubscriber]


def test_subscription_without_a_reply_is_tried_again(subscriber: RedisSubscriber, proxy: Proxy, tune: Tune) -> None:
    """[L19] The callback is called after the timeout, without a channel name; later the subscription succeeds."""
    tune(subscribe_timeout=1.0)
    proxy.plan("drop", "reply", of="SUBSCRIBE")
    assert opened(subscriber) == ""
    eventually(lambda: subscriber.channel_name(LOCKS))
    first, *others = proxy.fates("SUBSCRIBE")
    assert first == "drop reply"
    assert set(others) == {"pass"}


def test_subscriber_of_a_server_that_sends_single_bytes_times_out(make_subscriber: Make) -> None:
    """[E4] Neither a handshake nor a message without an end delays the callback."""
    with ScriptedServer() as server:
        server.trickles = True
        assert opened(make_subscriber(server.url)) == ""
        here, there = socket.socketpair()
        received: list[object] = []
        with here, there:
            threading.Thread(target=server.trickle, args=(there,), daemon=True).start()
            assert not PubSubReader(here, 1.0, received.append).read(0.3)
            assert not received


def test_lost_connection_is_replaced_under_the_same_name(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis
) -> None:
    """[H10] [L25] Messages published in between are lost, so every waiter is asked to try once; the name stays."""
    name = opened(subscriber)
    assert handler.gaps == 1
    direct.client_kill_filter(_type="pubsub")
    eventually(lambda: handler.gaps == 2)
    assert subscriber.channel_name(LOCKS) == name
    direct.publish(name, "1 lock")
    eventually(lambda: handler.messages)
    assert subscriptions(direct, subscriber) == 1


def test_subscriber_without_a_server_has_no_name(
    subscriber: RedisSubscriber, handler: RecordingHandler, proxy: Proxy
) -> None:
    """[H7] [H10] It reconnects soon after the server is back."""
    name = opened(subscriber)
    proxy.down()
    eventually(lambda: not subscriber.channel_name(LOCKS))
    assert opened(subscriber) == "", "the callback is called in time"
    proxy.up()
    eventually(lambda: handler.gaps == 2)
    assert subscriber.channel_name(LOCKS) == name


@pytest.mark.chaos
@pytest.mark.parametrize("direction", ["request", "reply"])
def test_half_open_connection_is_replaced_after_two_pings(
    subscriber: RedisSubscriber, handler: RecordingHandler, proxy: Proxy, direction: str
) -> None:
    """[L19] [H10] While there is a waiter a silent connection is pinged; it is replaced if the PING has no reply."""
    opened(subscriber)
    eventually(lambda: len(proxy.fates("PING")) > 5)
    assert handler.gaps == 1, "a PING with a reply keeps the connection"
    proxy.plan("drop", direction, of="PING")
    eventually(lambda: handler.gaps == 2)
    assert subscriber.channel_name(LOCKS)
    assert len(proxy.fates("SUBSCRIBE")) == 2


def test_old_connection_is_replaced(make_subscriber: Make, handler: RecordingHandler, proxy: Proxy) -> None:
    """[H24] So that a changed password or address takes effect; messages published in between are lost."""
    subscriber = make_subscriber(proxy.url, 2 * TICK)
    name = opened(subscriber)
    eventually(lambda: len(proxy.fates("SUBSCRIBE")) > 2)
    eventually(lambda: handler.gaps > 2)
    eventually(lambda: subscriber.channel_name(LOCKS) == name)


def test_subscriber_without_a_thread_stays_closed(subscriber: RedisSubscriber, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback is called; the next `open` tries again."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert opened(subscriber) == ""
    assert opened(subscriber) != ""


# Denied rights


@pytest.fixture
def guarded(redis_server: RedisServer, redis_url: str) -> Iterator[str]:
    """The URL of a user without a right to subscribe."""
    redis_server.command("ACL", "SETUSER", "deaf", "reset", "resetchannels", "on", ">pw", "~*", "+@all")
    yield redis_url.replace("redis://", "redis://deaf:pw@")
    redis_server.command("ACL", "DELUSER", "deaf")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "django_redis_locks.backend"]


def test_refused_subscription_is_logged_once(
    make_subscriber: Make, guarded: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """[L28] Waiters go on without it; a warning names the missing right; a minute later the subscription is tried
    again, and succeeds if it is allowed by then."""
    subscriber = make_subscriber(guarded)
    assert opened(subscriber) == ""
    eventually(lambda: warnings_of(caplog))
    (warning,) = warnings_of(caplog)
    assert warning.levelname == "WARNING"
    assert re.search(r"the server.*&<KEY_PREFIX>:\*", warning.getMessage())
    assert "pw" not in warning.getMessage()

    with monkeypatch.context() as patch:
        patch.setattr(subscriber, "_make", lambda: pytest.fail("it subscribed again"))
        assert opened(subscriber) == "", "answered at once"

    now = subscriber_module.now
    monkeypatch.setattr(subscriber_module, "now", lambda: now() + 61)
    assert opened(subscriber) == ""
    assert len(warnings_of(caplog)) == 1
    redis_server.command("ACL", "SETUSER", "deaf", "&lock:*")
    assert opened(subscriber) == "", "not yet"
    monkeypatch.setattr(subscriber_module, "now", lambda: now() + 122)
    assert opened(subscriber) == subscriber.channel_name(LOCKS) != ""
    assert len(warnings_of(caplog)) == 1


def test_withdrawn_right_closes_the_subscriber(
    make_subscriber: Make,
    guarded: str,
    redis_server: RedisServer,
    direct: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """[H7] [L28] The server closes the connection and denies the next subscription: the name is gone."""
    redis_server.command("ACL", "SETUSER", "deaf", "&lock:*")
    subscriber = make_subscriber(guarded)
    assert opened(subscriber)
    redis_server.command("ACL", "SETUSER", "deaf", "resetchannels")
    eventually(lambda: warnings_of(caplog))
    assert subscriber.channel_name(LOCKS) == ""
    assert opened(subscriber) == ""


# Forks


def test_forked_child_has_its_own_subscriber(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis
) -> None:
    """[H18] [L47] It has another name and connection, also if a thread of the parent held the mutex. The end of the
    child doesn't close the parent's connection."""
    name = opened(subscriber)

    def child() -> None:
        subscriber.after_fork_in_child()
        assert subscriber.channel_name(LOCKS) == ""
        assert opened(subscriber) != name

    with subscriber._mutex:
        in_child(child)
    assert subscriber.channel_name(LOCKS) == name
    assert direct.publish(name, "1 lock") == 1
    eventually(lambda: handler.messages)
    assert handler.gaps == 1

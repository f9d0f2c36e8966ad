"""The inbox over lost connections, silent servers, refusals and forks: it comes back by itself."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks.backends.redis import subscriber as module
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
    """[L19] Who asked for it is answered that it isn't heard, and hears so when it is."""
    tune(subscribe_timeout=1.0)
    proxy.plan("drop", "reply", of="SUBSCRIBE")
    assert opened(subscriber) == ""
    eventually(lambda: subscriber.channel_name(LOCKS))
    first, *others = proxy.fates("SUBSCRIBE")
    assert first == "drop reply"
    assert set(others) == {"pass"}


def test_subscriber_gives_up_a_server_that_says_a_byte_now_and_then(make_subscriber: Make) -> None:
    """[E4] Neither a handshake nor a message that never ends holds up who waits for it."""
    with ScriptedServer() as server:
        server.drips = True
        assert opened(make_subscriber(server.url)) == ""
        here, there = socket.socketpair()
        with here, there:
            threading.Thread(target=server.drip, args=(there,), daemon=True).start()
            assert module.PubSubReader(here, 1.0).next(0.3) is None


def test_lost_connection_is_replaced_under_the_same_name(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis
) -> None:
    """[H10] [L25] What was published meanwhile is lost, so everybody is to ask once; the name stays."""
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
    """[H7] [H10] And it comes back with the server, soon after it."""
    name = opened(subscriber)
    proxy.down()
    eventually(lambda: not subscriber.channel_name(LOCKS))
    assert opened(subscriber) == "", "who asks meanwhile is told so, in time"
    proxy.up()
    eventually(lambda: handler.gaps == 2)
    assert subscriber.channel_name(LOCKS) == name


@pytest.mark.chaos
@pytest.mark.parametrize("direction", ["request", "reply"])
def test_half_open_connection_is_replaced_after_two_pings(
    subscriber: RedisSubscriber, handler: RecordingHandler, proxy: Proxy, direction: str
) -> None:
    """[L19] [H10] While somebody waits a silent server is pinged; two silences are one connection."""
    opened(subscriber)
    eventually(lambda: len(proxy.fates("PING")) > 5)
    assert handler.gaps == 1, "pings that are answered cost no connection"
    proxy.plan("drop", direction, of="PING")
    eventually(lambda: handler.gaps == 2)
    assert subscriber.channel_name(LOCKS)
    assert len(proxy.fates("SUBSCRIBE")) == 2


def test_old_connection_is_replaced(make_subscriber: Make, handler: RecordingHandler, proxy: Proxy) -> None:
    """[H24] A changed password or address reaches it, as it does the other connections; what was published meanwhile is
    lost."""
    subscriber = make_subscriber(proxy.url, 2 * TICK)
    name = opened(subscriber)
    eventually(lambda: len(proxy.fates("SUBSCRIBE")) > 2)
    eventually(lambda: handler.gaps > 2)
    eventually(lambda: subscriber.channel_name(LOCKS) == name)


def test_subscriber_without_a_thread_stays_closed(subscriber: RedisSubscriber, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks is answered; the next one may have more luck."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert opened(subscriber) == ""
    assert opened(subscriber) != ""


# Refused


@pytest.fixture
def guarded(redis_server: RedisServer, redis_url: str) -> Iterator[str]:
    """The URL of a user who may subscribe to no channel."""
    redis_server.command("ACL", "SETUSER", "deaf", "reset", "resetchannels", "on", ">pw", "~*", "+@all")
    yield redis_url.replace("redis://", "redis://deaf:pw@")
    redis_server.command("ACL", "DELUSER", "deaf")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "django_redis_locks.backend"]


def test_refused_subscription_is_logged_once(
    make_subscriber: Make, guarded: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """[L28] Waiters go on without it; a warning says what to allow; the server is asked again a minute later, and it works
    when it is allowed."""
    subscriber = make_subscriber(guarded)
    assert opened(subscriber) == ""
    eventually(lambda: warnings_of(caplog))
    (warning,) = warnings_of(caplog)
    assert warning.levelname == "WARNING"
    assert re.search(r"the server.*&<KEY_PREFIX>:\*", warning.getMessage())
    assert "pw" not in warning.getMessage()

    with monkeypatch.context() as patch:
        patch.setattr(subscriber, "_make", lambda: pytest.fail("it was asked again"))
        assert opened(subscriber) == "", "answered at once"

    now = module.now
    monkeypatch.setattr(module, "now", lambda: now() + 61)
    assert opened(subscriber) == ""
    assert len(warnings_of(caplog)) == 1
    redis_server.command("ACL", "SETUSER", "deaf", "&lock:*")
    assert opened(subscriber) == "", "not yet"
    monkeypatch.setattr(module, "now", lambda: now() + 122)
    assert opened(subscriber) == subscriber.channel_name(LOCKS) != ""
    assert len(warnings_of(caplog)) == 1


def test_withdrawn_right_closes_the_subscriber(
    make_subscriber: Make,
    guarded: str,
    redis_server: RedisServer,
    direct: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """[H7] [L28] The server hangs up, and refuses the next subscription: it has no name any more."""
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
    """[H18] [L47] Whoever had the mutex: under another name, on another connection; its parent's isn't hung up by the
    child's end."""
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

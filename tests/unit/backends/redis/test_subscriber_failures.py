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
from tests.unit.backends.redis.subscribers import LOCKS, TICK, InboxOwner, opened, subscriptions
from tests.waiting import eventually
from tools.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("short_polls")

Make = Callable[..., RedisSubscriber]


def test_subscription_without_a_reply_is_tried_again(inbox: RedisSubscriber, proxy: Proxy, tune: Tune) -> None:
    """[L19] Who asked for it is answered that it isn't heard, and hears so when it is."""
    tune(subscribe_timeout=1.0)
    proxy.plan("drop", "reply", of="SUBSCRIBE")
    assert opened(inbox) == ""
    eventually(lambda: inbox.channel_name(LOCKS))
    first, *others = proxy.fates("SUBSCRIBE")
    assert first == "drop reply"
    assert set(others) == {"pass"}


def test_inbox_gives_up_a_server_that_says_a_byte_now_and_then(make_inbox: Make) -> None:
    """[E4] Neither a handshake nor a message that never ends holds up who waits for it."""
    with ScriptedServer() as server:
        server.drips = True
        assert opened(make_inbox(server.url)) == ""
        here, there = socket.socketpair()
        with here, there:
            threading.Thread(target=server.drip, args=(there,), daemon=True).start()
            assert module.PubSubReader(here, 1.0).next(0.3) is None


def test_lost_connection_is_replaced_under_the_same_name(
    inbox: RedisSubscriber, owner: InboxOwner, direct: redis.Redis
) -> None:
    """[H10] [L25] What was published meanwhile is lost, so everybody is to ask once; the name stays."""
    name = opened(inbox)
    assert owner.gaps == 1
    direct.client_kill_filter(_type="pubsub")
    eventually(lambda: owner.gaps == 2)
    assert inbox.channel_name(LOCKS) == name
    direct.publish(name, "1 lock")
    eventually(lambda: owner.messages)
    assert subscriptions(direct, inbox) == 1


def test_inbox_without_a_server_has_no_name(inbox: RedisSubscriber, owner: InboxOwner, proxy: Proxy) -> None:
    """[H7] [H10] And it comes back with the server, soon after it."""
    name = opened(inbox)
    proxy.down()
    eventually(lambda: not inbox.channel_name(LOCKS))
    assert opened(inbox) == "", "who asks meanwhile is told so, in time"
    proxy.up()
    eventually(lambda: owner.gaps == 2)
    assert inbox.channel_name(LOCKS) == name


@pytest.mark.chaos
@pytest.mark.parametrize("direction", ["request", "reply"])
def test_half_open_connection_is_replaced_after_two_pings(
    inbox: RedisSubscriber, owner: InboxOwner, proxy: Proxy, direction: str
) -> None:
    """[L19] [H10] While somebody waits a silent server is pinged; two silences are one connection."""
    opened(inbox)
    eventually(lambda: len(proxy.fates("PING")) > 5)
    assert owner.gaps == 1, "pings that are answered cost no connection"
    proxy.plan("drop", direction, of="PING")
    eventually(lambda: owner.gaps == 2)
    assert inbox.channel_name(LOCKS)
    assert len(proxy.fates("SUBSCRIBE")) == 2


def test_old_connection_is_replaced(make_inbox: Make, owner: InboxOwner, proxy: Proxy) -> None:
    """[H24] A changed password or address reaches it, as it does the other connections; what was published meanwhile is
    lost."""
    inbox = make_inbox(proxy.url, 2 * TICK)
    name = opened(inbox)
    eventually(lambda: len(proxy.fates("SUBSCRIBE")) > 2)
    eventually(lambda: owner.gaps > 2)
    eventually(lambda: inbox.channel_name(LOCKS) == name)


def test_inbox_without_a_thread_stays_closed(inbox: RedisSubscriber, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks is answered; the next one may have more luck."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert opened(inbox) == ""
    assert opened(inbox) != ""


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
    make_inbox: Make, guarded: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """[L28] Waiters go on without it; a warning says what to allow; the server is asked again a minute later, and it works
    when it is allowed."""
    inbox = make_inbox(guarded)
    assert opened(inbox) == ""
    eventually(lambda: warnings_of(caplog))
    (warning,) = warnings_of(caplog)
    assert warning.levelname == "WARNING"
    assert re.search(r"the server.*&<KEY_PREFIX>:\*", warning.getMessage())
    assert "pw" not in warning.getMessage()

    with monkeypatch.context() as patch:
        patch.setattr(inbox, "_make", lambda: pytest.fail("it was asked again"))
        assert opened(inbox) == "", "answered at once"

    now = module.now
    monkeypatch.setattr(module, "now", lambda: now() + 61)
    assert opened(inbox) == ""
    assert len(warnings_of(caplog)) == 1
    redis_server.command("ACL", "SETUSER", "deaf", "&lock:*")
    assert opened(inbox) == "", "not yet"
    monkeypatch.setattr(module, "now", lambda: now() + 122)
    assert opened(inbox) == inbox.channel_name(LOCKS) != ""
    assert len(warnings_of(caplog)) == 1


def test_withdrawn_right_closes_the_inbox(
    make_inbox: Make, guarded: str, redis_server: RedisServer, direct: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """[H7] [L28] The server hangs up, and refuses the next subscription: it has no name any more."""
    redis_server.command("ACL", "SETUSER", "deaf", "&lock:*")
    inbox = make_inbox(guarded)
    assert opened(inbox)
    redis_server.command("ACL", "SETUSER", "deaf", "resetchannels")
    eventually(lambda: warnings_of(caplog))
    assert inbox.channel_name(LOCKS) == ""
    assert opened(inbox) == ""


# Forks


def test_forked_child_has_its_own_inbox(inbox: RedisSubscriber, owner: InboxOwner, direct: redis.Redis) -> None:
    """[H18] [L47] Whoever had the mutex: under another name, on another connection; its parent's isn't hung up by the
    child's end."""
    name = opened(inbox)

    def child() -> None:
        inbox.after_fork_in_child()
        assert inbox.channel_name(LOCKS) == ""
        assert opened(inbox) != name

    with inbox._mutex:
        in_child(child)
    assert inbox.channel_name(LOCKS) == name
    assert direct.publish(name, "1 lock") == 1
    eventually(lambda: owner.messages)
    assert owner.gaps == 1

"""The proxy between a server and those who subscribe there: messages, confirmations and answers share a connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from tests.proxy import Proxy
from tests.resp import Refusal
from tests.tools.raw import Client
from tests.waiting import eventually

BOTH = pytest.mark.parametrize("protocol", [2, 3])


def subscribe(client: Client, protocol: int, *channels: str) -> None:
    client.ask(f"HELLO {protocol}")
    client.send(f"SUBSCRIBE {' '.join(channels)}")
    for count, channel in enumerate(channels, 1):
        assert list(client.hear()) == [b"subscribe", channel.encode(), count]


def hear_message(client: Client) -> bytes:
    kind, _, text = client.hear()
    assert kind == b"message"
    assert isinstance(text, bytes)
    return text


@BOTH
def test_message_may_be_missing_or_come_twice_or_late_or_never(
    proxy: Proxy, client: Client, connect: Callable[[], Client], direct: redis.Redis, protocol: int
) -> None:
    """One that is missing holds back none behind it."""
    client.ask(f"HELLO {protocol}")
    assert isinstance(client.ask("SUBSCRIBE"), Refusal)
    subscribe(client, protocol, "a", "b")
    proxy.plan("drop", "reply", of="message", times=2)
    for number in range(3):
        assert direct.publish("ab"[number % 2], str(number)) == 1
    assert hear_message(client) == b"2"
    assert proxy.fates("message") == ["drop reply", "drop reply", "pass"]
    proxy.plan("duplicate", "reply", of="message")
    direct.publish("a", "1")
    assert [hear_message(client), hear_message(client)] == [b"1", b"1"]
    proxy.plan("delay", "reply", of="message")
    direct.publish("a", "2")
    direct.publish("a", "3")
    assert connect().ask("PING") == b"PONG"
    assert client.silent
    proxy.deliver()
    assert [hear_message(client), hear_message(client)] == [b"2", b"3"]
    proxy.plan("cut", "reply", of="message")
    direct.publish("a", "4")
    assert client.cut
    eventually(lambda: direct.publish("a", "5") == 0)


@BOTH
def test_messages_and_replies_are_kept_apart(proxy: Proxy, client: Client, direct: redis.Redis, protocol: int) -> None:
    """Requests and answers stay together on a connection that hears messages, subscribes and unsubscribes."""
    subscribe(client, protocol, "a", "b")
    direct.publish("a", "1")
    assert hear_message(client) == b"1"
    proxy.plan("duplicate", "reply", of="PUNSUBSCRIBE")
    client.send("PING", "PSUBSCRIBE x*", "UNSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE x*")
    pong = client.hear()
    assert pong == (b"PONG" if protocol == 3 else [b"pong", b""])
    steps = [client.hear()[0] for _ in range(6)]
    assert steps == [b"psubscribe", *[b"unsubscribe"] * 3, *[b"punsubscribe"] * 2]
    proxy.plan("duplicate", "reply", of="INCR")
    client.send("GET n", "INCR n", "INCR n")
    assert [client.hear() for _ in range(4)] == [None, 1, 1, 2]
    assert proxy.fates("message") == ["pass"]


@BOTH
@pytest.mark.parametrize("direction", ["request", "reply"])
def test_subscription_may_be_late(
    proxy: Proxy, client: Client, direct: redis.Redis, protocol: int, direction: str
) -> None:
    client.ask(f"HELLO {protocol}")
    proxy.plan("delay", direction, of="SUBSCRIBE")
    client.send("SUBSCRIBE a b")
    eventually(lambda: proxy.fates("SUBSCRIBE") and direct.publish("b", "early") == (direction == "reply"))
    assert client.silent
    proxy.deliver()
    assert [client.hear()[:2] for _ in range(2)] == [[b"subscribe", b"a"], [b"subscribe", b"b"]]
    direct.publish("a", "late")
    assert b"late" in {hear_message(client) for _ in range(2 if direction == "reply" else 1)}


@BOTH
def test_duplicate_subscription_is_confirmed_once(
    proxy: Proxy, client: Client, direct: redis.Redis, protocol: int
) -> None:
    proxy.plan("duplicate", "request", of="SUBSCRIBE")
    subscribe(client, protocol, "a", "b")
    direct.publish("a", "1")
    assert hear_message(client) == b"1"

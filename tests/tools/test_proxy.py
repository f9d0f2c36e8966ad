"""The proxy that other tests trust: each fault does what it says, to what it is meant for, and to nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tests.probes.scripts import sha_of, source_of
from tests.proxy import Fault, Proxy
from tests.resp import ErrorReply
from tests.tools.raw import Client
from tests.waiting import eventually
from tools.redis_server import RedisServer


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A look at the server, past the proxy."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[Callable[[], Client]]:
    with contextlib.ExitStack() as stack:

        def connect() -> Client:
            client = Client(proxy.url)
            stack.callback(client.close)
            return client

        yield connect


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.fixture
def other(connect: Callable[[], Client]) -> Client:
    """A client that the faults of others don't touch. Its answer comes after what the proxy had to do before."""
    return connect()


# What passes


def test_calls_are_named_by_script_or_command(proxy: Proxy, client: Client, other: Client) -> None:
    """A script by its hash or its source, a command in capitals; in their order, with their connection."""
    client.ask(f"EVALSHA {sha_of('lock/release')} 0")
    client.ask("eval return{1} 0")
    other.ask("get a")
    assert proxy.calls == [("lock/release", "pass", 1), ("EVAL", "pass", 1), ("GET", "pass", 2)]
    assert proxy.fates() == ["pass", "pass"]
    assert proxy.fates("GET") == ["pass"]
    with redis.Redis.from_url(proxy.url) as third, pytest.raises(redis.ResponseError):
        third.eval(source_of("lock/release"), 0)
    assert proxy.fates("lock/release") == ["pass", "pass"]


def test_pipelines_and_large_values_pass_unharmed(proxy: Proxy, client: Client) -> None:
    large = "x" * 3_000_000
    client.send(*(f"SET key:{number} {number}" for number in range(500)), f"SET large {large}")
    assert [client.hear() for _ in range(501)] == [b"OK"] * 501
    client.send("GET large", "GET key:499")
    assert client.hear() == large.encode()
    assert client.hear() == b"499"
    assert len(proxy.calls) == 503


# What is planned


def test_plans_are_used_up_in_their_order(proxy: Proxy, client: Client, direct: redis.Redis) -> None:
    proxy.plan("pass", of="INCR")
    proxy.plan("duplicate", "request", of="INCR", times=2)
    proxy.plan("drop", "request", of="DECR")
    for _ in range(4):
        client.ask("INCR n")
    assert proxy.fates("INCR") == ["pass", "duplicate request", "duplicate request", "pass"]
    assert direct.get("n") == "6"


def test_policy_decides_calls_without_a_plan(proxy: Proxy, client: Client) -> None:
    """A plan without a name is for scripts: whatever a client sends when it connects isn't meant."""
    seen: list[tuple[str, Any]] = []

    def policy(name: str, value: list[Any], link: Any) -> Fault | None:
        seen.append((name, value[1]))
        return None

    proxy.policy = policy
    proxy.plan("duplicate", "reply", of="GET")
    proxy.plan("cut", "request")
    for command in ("GET planned", "GET second"):
        client.ask(command)
    client.hear()
    client.send("EVAL return{1} 0")
    assert client.cut
    assert seen == [("GET", b"second")]


# Each fault

HEARD = {"silent": [], "cut": [], "late": [1, b"OK"], "twice": [1, b"OK"], "repeated": [1, 1, b"OK"]}
FAULTS = {
    ("drop", "request"): ("silent", {"before"}),
    ("drop", "reply"): ("silent", {"before", "n", "after"}),
    ("cut", "request"): ("cut", {"before"}),
    ("cut", "reply"): ("cut", {"before", "n", "after"}),
    ("freeze", "request"): ("silent", {"before"}),
    ("freeze", "reply"): ("silent", {"before", "n", "after"}),
    ("delay", "request"): ("late", {"before"}),
    ("delay", "reply"): ("late", {"before", "n", "after"}),
    ("duplicate", "request"): ("twice", {"before", "n", "after"}),
    ("duplicate", "reply"): ("repeated", {"before", "n", "after"}),
}
"""What the client gets, and which keys the server has by then."""


@pytest.mark.parametrize(("action", "direction"), FAULTS)
def test_fault_hits_its_call_and_what_follows_on_the_connection(
    proxy: Proxy, client: Client, other: Client, direct: redis.Redis, action: str, direction: str
) -> None:
    """A stream has no holes: otherwise the next answer would be taken for the one that is missing."""
    outcome, keys = FAULTS[action, direction]
    client.ask("SET before 1")
    proxy.plan(action, direction, of="INCR")
    client.send("INCR n", "SET after 1")
    eventually(lambda: set(direct.keys()) == keys and proxy.fates("INCR") == [f"{action} {direction}"])
    assert other.ask("PING") == b"PONG"
    assert outcome not in ("silent", "late") or client.silent
    assert outcome != "cut" or client.cut
    if outcome == "late":
        proxy.deliver()
    assert [client.hear() for _ in HEARD[outcome]] == HEARD[outcome]
    if outcome in ("twice", "repeated"):
        assert client.ask("GET n") == (b"2" if outcome == "twice" else b"1")


# Later


def test_deliver_waits_for_a_reply_on_its_way(proxy: Proxy, client: Client) -> None:
    """A test may ask for it between what the server does, which it sees, and the answer to that."""
    proxy.plan("delay", "reply", of="INCR")
    with ThreadPoolExecutor(1) as threads:
        delivered = threads.submit(proxy.deliver)
        client.send("INCR n")
        delivered.result()
    assert client.hear() == 1


def test_fault_behind_another_call_is_executed_before_its_reply(
    proxy: Proxy, client: Client, other: Client, direct: redis.Redis
) -> None:
    proxy.plan("delay", "request", of="INCR", behind="GET")
    proxy.plan("late copy", "request", of="INCR", behind="GET", times=10)
    client.send("INCR n")
    for number in range(1, 11):
        assert other.ask("INCR n") == number
    assert direct.get("n") == "10"
    assert other.ask("GET n") == b"10"
    assert direct.get("n") == "21"
    assert client.hear() == 11


def test_late_copy_comes_on_a_connection_of_its_own(proxy: Proxy, client: Client, redis_url: str) -> None:
    """To the same database, though nobody is there any more."""
    proxy.plan("late copy", "request", of="INCR", times=10)
    client.send("SELECT 3", *["INCR n"] * 10)
    assert [client.hear() for _ in range(11)] == [b"OK", *range(1, 11)]
    client.close()
    with redis.Redis.from_url(redis_url.replace("/0", "/3")) as later:
        assert later.get("n") == b"10"
        proxy.deliver()
        assert later.get("n") == b"20"
        assert not proxy.holds


def test_frozen_connection_hides_the_end_of_either_side(
    proxy: Proxy, client: Client, connect: Callable[[], Client], direct: redis.Redis
) -> None:
    """The server goes on to count a subscriber who is gone; new connections work."""
    client.ask("SUBSCRIBE a")
    busy = connect()
    busy.ask("PING")
    proxy.freeze(of="SUBSCRIBE")
    client.close()
    assert busy.ask("PING") == b"PONG"
    assert connect().ask("PING") == b"PONG"
    assert direct.publish("a", "unheard") == 1
    proxy.freeze()
    direct.client_kill_filter(_type="normal", skipme=True)
    busy.send("PING")
    assert connect().ask("PING") == b"PONG"
    assert busy.silent


# down, up, reset


def test_down_cuts_and_refuses_until_up(proxy: Proxy, client: Client, connect: Callable[[], Client]) -> None:
    client.ask("PING")
    proxy.down()
    assert client.cut
    refused = connect()
    with contextlib.suppress(OSError):
        refused.send("PING")
    assert refused.cut
    proxy.up()
    assert connect().ask("PING") == b"PONG"


def test_reset_forgets_everything(
    proxy: Proxy, client: Client, connect: Callable[[], Client], direct: redis.Redis
) -> None:
    proxy.plan("late copy", "request", of="INCR")
    proxy.plan("drop", "request", of="GET", times=2)
    proxy.plan("delay", "reply", of="ECHO")
    proxy.plan("freeze", "request", of="TIME")
    hurt, well = [connect(), connect(), connect()], client
    well.ask("INCR n")
    for one, command in zip(hurt, ("GET n", "ECHO 1", "TIME"), strict=True):
        one.send(command)
    eventually(lambda: len(proxy.calls) == 4 and proxy.holds == 2)  # the copy, and the reply
    proxy.reset()
    assert all(one.cut for one in hurt)
    assert not proxy.holds
    assert well.ask("GET n") == b"1"
    assert proxy.fates("GET") == ["pass"]


# Messages, confirmations and answers share a connection


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
    assert isinstance(client.ask("SUBSCRIBE"), ErrorReply)
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

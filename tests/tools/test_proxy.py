"""The proxy that other tests trust: each fault does what it says, to what it is meant for, and to nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tests.probes.scripts import sha_of, source_of
from tests.proxy import Fault, Proxy
from tests.tools.raw import Client
from tests.waiting import eventually
from tools.redis_server import RedisServer

# What passes


def test_calls_are_named_by_script_or_command(proxy: Proxy, client: Client, other: Client) -> None:
    """A script by its hash or its source, a command in capitals; in their order, with their connection."""
    client.ask(f"EVALSHA {sha_of('lock/free')} 0")
    client.ask("eval return{1} 0")
    other.ask("get a")
    assert proxy.calls == [("lock/free", "pass", 1), ("EVAL", "pass", 1), ("GET", "pass", 2)]
    assert proxy.fates() == ["pass", "pass"]
    assert proxy.fates("GET") == ["pass"]
    with redis.Redis.from_url(proxy.url) as third, pytest.raises(redis.ResponseError):
        third.eval(source_of("lock/free"), 0)
    assert proxy.fates("lock/free") == ["pass", "pass"]


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


def test_plan_without_a_name_applies_to_scripts(proxy: Proxy, client: Client) -> None:
    """Whatever a client sends when it connects isn't meant."""
    proxy.plan("cut", "request")
    assert client.ask("PING") == b"PONG"
    client.send("EVAL return{1} 0")
    assert client.cut


def test_senseless_plans_are_refused(proxy: Proxy) -> None:
    plans: list[tuple[str, str, dict[str, Any]]] = [
        ("lose", "reply", {}),
        ("drop", "answer", {}),
        ("late copy", "reply", {}),
        ("drop", "request", {"of": "message"}),
        ("drop", "request", {"seconds": 1}),
        ("cut", "request", {"behind": "GET"}),
    ]
    for action, direction, more in plans:
        with pytest.raises(ValueError, match=f"{action}|message"):
            proxy.plan(action, direction, **more)


def test_policy_decides_calls_without_a_plan(proxy: Proxy, client: Client) -> None:
    seen: list[tuple[str, Any]] = []

    def policy(name: str, value: list[Any], link: Any) -> Fault | None:
        seen.append((name, value[1]))
        return Fault("cut", "request") if len(seen) == 2 else None

    proxy.policy = policy
    proxy.plan("duplicate", "reply", of="GET")
    for command in ("GET planned", "GET first"):
        client.ask(command)
    client.hear()
    client.send("GET second")
    assert client.cut
    assert seen == [("GET", b"first"), ("GET", b"second")]


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


def test_delayed_request_survives_its_client(proxy: Proxy, client: Client, direct: redis.Redis) -> None:
    """As one does that is on its way when its client gives up."""
    proxy.plan("delay", "request", of="INCR")
    client.send("INCR n")
    eventually(lambda: proxy.fates("INCR"))
    client.close()
    proxy.deliver()
    assert direct.get("n") == "1"


def test_deliver_waits_for_a_reply_on_its_way(proxy: Proxy, client: Client) -> None:
    """A test may ask for it between what the server does, which it sees, and the answer to that."""
    proxy.plan("delay", "reply", of="INCR")
    with ThreadPoolExecutor(1) as threads:
        delivered = threads.submit(proxy.deliver)
        client.send("INCR n")
        delivered.result()
    assert client.hear() == 1


def test_delay_with_seconds_ends_by_itself(proxy: Proxy, client: Client) -> None:
    for first, direction in ((1, "request"), (3, "reply")):
        proxy.plan("delay", direction, of="INCR", seconds=0.01)
        client.send("INCR n", "INCR n")
        assert [client.hear(), client.hear()] == [first, first + 1], direction


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
    silent, held, frozen, well = connect(), connect(), connect(), client
    well.ask("INCR n")
    silent.send("GET n")
    proxy.plan("delay", "reply", of="ECHO")
    held.send("ECHO 1")
    proxy.plan("freeze", "request", of="TIME")
    frozen.send("TIME")
    eventually(lambda: len(proxy.calls) == 4 and proxy.holds == 2)  # the copy, and the reply
    proxy.reset()
    assert silent.cut
    assert held.cut
    assert frozen.cut
    assert not proxy.holds
    assert well.ask("GET n") == b"1"
    assert proxy.fates("GET") == ["pass"]


def test_killed_server_cuts_its_connections(make_server: Callable[..., RedisServer]) -> None:
    server = make_server()
    with Proxy(server.port) as proxy:
        client = Client(proxy.url)
        assert client.ask("PING") == b"PONG"
        server.kill()
        assert client.cut
        client.close()
        later = Client(proxy.url)
        assert later.cut
        later.close()

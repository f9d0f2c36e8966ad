"""A server that replies with something else than RESP, with the reply to another command, or stops in the middle. No
lock is granted, extended or released by that, no call hangs, and the next one works. The parser has tests in
tests/unit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from django_redis_locks import Grant, LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.helpers import LEASE, Async, Sync, fence_of
from tests.proxy import Fault, Proxy
from tests.waiting import BUSY, eventually

Open = Callable[..., Locks]
Face = Sync | Async
KEY = "lock:{0}:k:a"
STEPS = ["acquire", "extend", "release"]

HTML = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html><h1>400 Bad Request</h1></html>\r\n"
PART = b"*5\r\n:1\r\n$16\r\n1795229259"
GRANTED = b"*5\r\n:1\r\n:1795229259629244\r\n:1\r\n:0\r\n:0\r\n"

MALFORMED = [
    Fault("replace", "reply", data=HTML),
    Fault("cut", "reply", data=HTML),
    Fault("cut", "reply", data=b"\x15\x03\x01\x00\x02\x02\x46"),  # a TLS alert
    Fault("replace", "reply", data=b"OK\r\n"),
    Fault("replace", "reply", data=b"$-5\r\n"),
    Fault("freeze", "reply", data=b"*2147483647\r\n"),
    Fault("replace", "reply", data=b"*2\r\n$1\r\nabcdef\r\n:1\r\n"),
    Fault("replace", "reply", data=b"*1\r\n" * 10_000 + b":1\r\n"),
    Fault("replace", "reply", data=b"+" * 1_000_000),
]

ERRORS = {
    b"-ODD something happened\r\n": r"refuses \(ODD\): (ODD )?something happened",
    b"-\r\n": "refuses",
    b"-\xff\xfe\r\n": "refuses|no answer",
    b"!21\r\nSYNTAX invalid syntax\r\n": "SYNTAX|no answer",
}
"""Errors, and what the message says."""

UNEXPECTED = [b"+OK\r\n", b"+QUEUED\r\n", b"$-1\r\n", b"*-1\r\n", b"$3\r\nabc\r\n", b"*1\r\n*1\r\n:1\r\n"]
UNEXPECTED_BY = {
    "acquire": [
        *UNEXPECTED,
        b"*0\r\n",
        b":1\r\n",
        b"*5\r\n:1\r\n$-1\r\n:1\r\n:0\r\n:0\r\n",  # granted without a fence
        b"*6\r\n:1\r\n:1795229259629244\r\n:1\r\n:0\r\n:0\r\n:0\r\n",  # granted, and one number more
        b"*5\r\n$1\r\n1\r\n:1795229259629244\r\n:1\r\n:0\r\n:0\r\n",  # granted in letters
        b"*2\r\n:2\r\n:1\r\n",
    ],
    "extend": [*UNEXPECTED, b"*0\r\n"],
    "release": [*UNEXPECTED, b"*0\r\n", b"*1\r\n:1\r\n"],
}
"""Well-formed replies to other commands."""


class Caller:
    """Takes steps on a server that replies wrongly to some, and checks what is left behind."""

    def __init__(self, proxy: Proxy, client: Locks, face: Face, direct: redis.Redis) -> None:
        self.proxy = proxy
        self.client = client
        self.timeout = client.settings.options["socket_timeout"]
        self.lock = client.lock("a", expire=30)
        self.face = face
        self._direct = direct
        self.check()

    def prepare(self, step: str) -> Grant | None:
        return None if step == "acquire" else self.face.acquire(self.lock, timeout=0)

    def perform(self, step: str, grant: Grant | None) -> Grant | None:
        if grant is None:
            grant = self.face.acquire(self.lock, timeout=0)
            assert grant is None or grant.fence == fence_of(self._direct, KEY)
        elif step == "extend":
            self.face.extend(grant, 60)
        else:
            self.face.release(grant)
        return grant

    def fail(self, step: str, inject_fault: Callable[[], object], context: object) -> str:
        """Take the step after ``inject_fault`` was called; return the message of the error."""
        grant = self.prepare(step)
        inject_fault()
        begin = clock.now()
        with pytest.raises(LockBackendError) as caught:
            self.perform(step, grant)
        error, text = caught.value, str(caught.value)
        assert clock.now() - begin < self.timeout + BUSY, context
        assert (error.alias, error.key) == ("default", "a"), context
        assert error.outcome_unknown or re.search("refuses|can't reach", text), context
        assert len(text) < 500, "what came may be long"
        self.proxy.reset()
        if grant is not None and step == "extend":
            assert not grant.lost, context
            assert grant.remaining() <= 30, context
            self.face.extend(grant, 60)
            self.face.release(grant)
        self.check()
        return text

    def check(self) -> None:
        """Check that a step without a reply leaves nothing in the store, and that the next grant is correct."""
        eventually(lambda: not self._direct.exists(KEY))
        grant = self.perform("acquire", None)
        assert grant is not None
        self.face.extend(grant, 60)
        assert grant.remaining() > 50
        self.face.release(grant)
        assert not self._direct.exists(KEY)


@pytest.fixture
def make_caller(proxy: Proxy, open_locks: Open, face: Face, direct: redis.Redis) -> Callable[..., Caller]:
    """`make_caller(timeout=10)`: with this socket timeout; one connection is idle and the scripts are loaded."""

    def make(timeout: float = 10.0, **options: Any) -> Caller:
        options |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        return Caller(proxy, open_locks(proxy.url, BACKEND_WAIT=0, OPTIONS=options), face, direct)

    return make


@pytest.fixture
def caller(make_caller: Callable[..., Caller]) -> Caller:
    return make_caller()


@pytest.mark.parametrize("step", STEPS)
def test_step_with_a_malformed_reply_raises_LockBackendError(caller: Caller, step: str) -> None:
    """[H15] [H21] The connection is closed; the message names alias and server."""
    for fault in MALFORMED:
        text = caller.fail(step, lambda fault=fault: caller.proxy.insist(fault), fault)
        assert "alias 'default': no answer from redis://127.0.0.1:" in text, fault


@pytest.mark.parametrize("step", STEPS)
def test_step_with_an_unexpected_reply_raises_LockBackendError(caller: Caller, step: str) -> None:
    """[H15] [L16] [F10] Nothing is granted, busy, extended, released or lost; changes in the store are undone."""
    of = {"acquire": "lock/acquire", "extend": "lock/renew", "release": "lock/release"}[step]
    direction = "request" if step == "release" else "reply"  # a release that isn't carried out is tried again
    for data in UNEXPECTED_BY[step]:
        fault = Fault(
            "replace", direction, of=of, data=data
        )  # on every request: the previous lock may be cleaned up at the same time
        text = caller.fail(step, lambda fault=fault: caller.proxy.insist(fault), data)
        assert of in text, data


def test_locked_with_an_unexpected_reply_raises_LockBackendError(caller: Caller) -> None:
    """An empty list is the reply for a free lock."""
    for data in UNEXPECTED:
        caller.proxy.plan("replace", "reply", of="lock/inspect", data=data)
        with pytest.raises(LockBackendError, match="lock/inspect"):
            caller.lock.locked()


def test_step_with_an_error_reply_raises_its_text(caller: Caller) -> None:
    """[L20] The message contains the server's text, even an unreadable one; changes in the store are undone."""
    for step in STEPS:
        for data, pattern in ERRORS.items():
            fault = Fault("replace", "reply", data=data)
            text = caller.fail(step, lambda fault=fault: caller.proxy.insist(fault), (step, data))
            assert re.search(pattern, text), (step, text)


@pytest.mark.chaos
def test_step_with_an_unfinished_reply_fails_after_the_socket_timeout(make_caller: Callable[..., Caller]) -> None:
    """[F15] [L9] One attempt takes at most the socket timeout, and the message says so."""
    caller = make_caller(2 * SILENCE)
    for step in STEPS:
        text = caller.fail(step, lambda: caller.proxy.insist(Fault("freeze", "reply", data=PART)), step)
        assert re.search(r"no answer from redis://127.0.0.1:.*([Tt]ime|silent)", text), step


def test_step_on_connections_that_close_fails(caller: Caller) -> None:
    """[H24] On an idle connection the step is repeated at once; on a new connection it fails."""
    for step in STEPS:
        for data in (b"", PART):
            fault = Fault("cut", "reply", data=data)
            text = caller.fail(step, lambda fault=fault: caller.proxy.insist(fault), (step, data))
            assert re.search("no answer from redis://127.0.0.1:.*closed", text), (step, text)


def test_step_on_a_connection_that_closes_once_is_tried_again(caller: Caller) -> None:
    """[H24] No error is raised: each step may be done twice."""
    for step in STEPS:
        grant = caller.prepare(step)
        caller.proxy.plan("cut", "reply", data=PART)
        grant = caller.perform(step, grant)
        assert grant is not None, step
        if step != "release":
            caller.perform("release", grant)
        caller.check()


@pytest.mark.chaos
def test_step_on_connections_that_are_never_served_fails(make_caller: Callable[..., Caller]) -> None:
    """[L22] The server only accepts connections, like a load balancer without a backend."""
    caller = make_caller(2 * SILENCE)
    for fault in (Fault("cut"), Fault("cut", data=HTML), Fault("freeze")):

        def refuse(fault: Fault = fault) -> None:
            caller.proxy.policy = lambda name, value, link: fault
            caller.proxy.freeze() if fault.action == "freeze" else None

        text = caller.fail("acquire", refuse, fault)
        assert re.search(r"alias 'default'.*(can't reach|no answer from) redis://127.0.0.1:", text), fault


@pytest.mark.chaos
@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_with_unexpected_replies_is_repeated(proxied: Locks, proxy: Proxy, direct: redis.Redis) -> None:
    """[L9] The maintenance thread tries again, and counts none of them as "renewed" or "lost"."""
    grant = proxied.lock("a", expire=LEASE, renew=True).acquire()
    for data in (b"*1\r\n:1\r\n", b"+OK\r\n", b"$-1\r\n"):
        proxy.plan("replace", of="lock/renew", data=data)
    eventually(lambda: len(proxy.fates("lock/renew")) >= 5)
    assert not grant.lost
    assert direct.pttl(KEY) > 500
    grant.release()


# Replies to no command


def check_taken(caller: Caller, direct: redis.Redis) -> None:
    """A grant of this lock, which has another owner, is wrong."""
    direct.set("lock:{0}:k:taken", "1 lock theirs 1", px=60_000)
    for _ in range(3):
        assert caller.face.acquire(caller.client.lock("taken"), timeout=0) is None


@pytest.mark.parametrize("step", STEPS)
def test_surplus_reply_closes_the_connection(caller: Caller, proxy: Proxy, direct: redis.Redis, step: str) -> None:
    """[H21] The surplus isn't the reply to a later command."""
    for surplus in (GRANTED, b":1\r\n", GRANTED * 3, GRANTED[:-4]):
        grant = caller.prepare(step)
        proxy.plan("replace", "reply", data=b"{reply}" + surplus)
        with contextlib.suppress(LockBackendError):
            grant = caller.perform(step, grant)
        check_taken(caller, direct)
        if grant is not None and step != "release":
            caller.face.release(grant)
        caller.check()


def test_unrequested_reply_on_an_idle_connection_is_dropped(caller: Caller, proxy: Proxy, direct: redis.Redis) -> None:
    """[H21] [H24] It comes some time after the last reply, before the next command."""
    proxy.push(GRANTED)
    caller.face.sleep(0.06)  # a connection that was used a moment ago isn't checked
    check_taken(caller, direct)


@pytest.mark.chaos
def test_late_reply_is_dropped_with_its_connection(
    make_caller: Callable[..., Caller], proxy: Proxy, direct: redis.Redis
) -> None:
    """[H2] [H20] [H21] The call has timed out; calls before and after the reply comes don't read it."""
    caller = make_caller(SILENCE)
    proxy.plan("delay", "reply", of="lock/acquire")
    with pytest.raises(LockBackendError, match="no answer"):
        caller.face.acquire(caller.lock, timeout=0)
    check_taken(caller, direct)
    proxy.deliver()
    check_taken(caller, direct)
    caller.check()


def test_push_between_replies_is_no_reply(make_caller: Callable[..., Caller], proxy: Proxy) -> None:
    """[H20] RESP3 pushes before and behind any reply."""
    caller = make_caller(protocol=3)
    push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n"
    for data in (push + b"{reply}", b"{reply}" + push, push + b"{reply}" + push):
        proxy.insist(Fault("replace", "reply", data=data))
        for _ in range(3):
            caller.check()


@pytest.mark.parametrize("asked", [2, 3, None])
def test_reconnect_to_a_server_of_another_protocol_negotiates_again(
    make_caller: Callable[..., Caller], proxy: Proxy, asked: int | None
) -> None:
    """HELLO accepts 3 or 2, or is unknown (0), as after a failover to an older server. A client that requires RESP3
    raises where there is none."""
    caller = make_caller(**({} if asked is None else {"protocol": asked}))
    able = 3
    unknown, unsupported = (
        Fault("replace", data=data)
        for data in (b"-ERR unknown command `HELLO`, with args \r\n", b"-NOPROTO unsupported protocol version\r\n")
    )

    def hello(name: str, value: list[bytes], link: object) -> Fault | None:
        if name != "HELLO" or (able and int(value[1]) <= able):
            return None
        return unsupported if able else unknown

    proxy.policy = hello
    for able in (3, 3, 2, 2, 0, 0, 3, 0, 2, 3):  # each follows each
        proxy.down()
        proxy.up()
        if asked == 3 and able < 3:
            with pytest.raises(LockBackendError, match=r"alias 'default'.*(HELLO|NOPROTO|protocol)"):
                caller.face.acquire(caller.lock, timeout=0)
        else:
            caller.check()

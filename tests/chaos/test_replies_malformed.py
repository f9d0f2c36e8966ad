"""A server that replies with something else than RESP, stops in the middle or stays silent: a web server, a load balancer
or another protocol behind the address. No lock is granted by that, no call hangs, the error names what came, and the next
call works."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import Grant, LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.fake_server import FakeServer, Reply, dribble, endless, then_close, then_silence
from tests.chaos.helpers import Async, Sync, fence_of
from tests.waiting import BUSY, eventually

Open = Callable[..., Locks]
Face = Sync | Async

KEY = "lock:{0}:k:a"

HTML = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html><h1>400 Bad Request</h1></html>\r\n"

NO_RESP: dict[str, bytes | Reply] = {
    "html": HTML,
    "html, closed": then_close(HTML),
    "a TLS alert": then_close(b"\x15\x03\x01\x00\x02\x02\x46"),
    "no type": b"OK\r\n",
    "an empty line": b"\r\n",
    "a length of letters": b"$abc\r\n",
    "an empty length": b"$\r\n",
    "a negative length": b"$-5\r\n",
    "a negative size": b"*-7\r\n",
    "a length of 23 digits": b"$99999999999999999999999\r\n",
    "a size of 23 digits": b"*99999999999999999999999\r\n",
    "a size larger than memory": then_silence(b"*2147483647\r\n"),
    "a gigabyte announced": then_silence(b"$1073741824\r\n" + b"x" * 1000),
    "a number of letters": b":abc\r\n",
    "a text longer than its length": b"*2\r\n$1\r\nabcdef\r\n:1\r\n",
    "deeply nested arrays": b"*1\r\n" * 10_000 + b":1\r\n",
    "an endless line": endless(b"+" * 65536),
    "an endless number": endless(b":" + b"1" * 65536),
}

SILENT: dict[str, bytes | Reply] = {
    "nothing": then_silence(b""),
    "part of a line": then_silence(b"+" + b"x" * 1000),
    "part of an array": then_silence(b"*5\r\n:1\r\n"),
    "part of a text": then_silence(b"*5\r\n:1\r\n$16\r\n1795229259"),
    "byte by byte": dribble(SILENCE / 2, b"+" + b"x" * 200 + b"\r\n"),
}
"""Replies that don't end within the socket timeout; the last one is never silent for as long."""

CLOSED: dict[str, bytes | Reply] = {
    "nothing": then_close(b""),
    "part of a line": then_close(b"*5"),
    "part of an array": then_close(b"*5\r\n:1\r\n"),
    "part of a text": then_close(b"*5\r\n:1\r\n$16\r\n1795229259"),
}

ERRORS = {
    b"-ODD something happened\r\n": r"refuses \(ODD\): (ODD )?something happened",
    b"-\r\n": "refuses",
    b"-\xff\xfe\r\n": "refuses|no answer",
    b"!21\r\nSYNTAX invalid syntax\r\n": "SYNTAX|no answer",
}
"""Errors, and what is said of them."""

GREETINGS = {"closed": then_close(b""), "html": then_close(HTML), "silence": then_silence(b"")}

STEPS = ["acquire", "extend", "release"]


class Caller:
    """Takes one step after the other on a server that replies badly to some, and checks what is left behind."""

    def __init__(self, fake_server: FakeServer, client: Locks, face: Face, direct: redis.Redis) -> None:
        self.fake_server = fake_server
        self.timeout = client.settings.options["socket_timeout"]
        self.lock = client.lock("a", expire=30)
        self._face = face
        self._direct = direct

    def fail(self, step: str, hurt: Callable[[], None], context: str) -> str:
        """Take the step after ``hurt`` was called; return the message of the error."""
        grant = self.prepare(step)
        hurt()
        begin = clock.now()
        with pytest.raises(LockBackendError) as caught:
            self.perform(step, grant)
        assert clock.now() - begin < self.timeout + BUSY, context
        assert (caught.value.alias, caught.value.key) == ("default", "a"), context
        assert caught.value.unanswered or "refuses" in str(caught.value) or "can't reach" in str(caught.value), context
        self.fake_server.recover()
        if grant is not None and step == "extend":
            assert not grant.lost, context
            self._face.extend(grant, 60)
            self._face.release(grant)
        self.check()
        return str(caught.value)

    def fail_on(self, step: str, reply: bytes | Reply, context: str) -> str:
        return self.fail(step, lambda: self.fake_server.reply_with(reply, times=-1), context)

    def prepare(self, step: str) -> Grant | None:
        return None if step == "acquire" else self._face.acquire(self.lock, timeout=0)

    def perform(self, step: str, grant: Grant | None) -> Grant | None:
        if grant is None:
            grant = self._face.acquire(self.lock, timeout=0)
            assert grant is None or self._fence() == grant.fence
        elif step == "extend":
            self._face.extend(grant, 60)
        else:
            self._face.release(grant)
        return grant

    def check(self) -> None:
        """What an unanswered step left in the store goes, and the next grant is what the server says."""
        eventually(lambda: not self._direct.exists(KEY))
        grant = self._face.acquire(self.lock, timeout=0)
        assert grant is not None
        assert self._fence() == grant.fence
        self._face.extend(grant, 60)
        assert grant.remaining() > 50
        self._face.release(grant)
        assert not self._direct.exists(KEY)

    def _fence(self) -> int:
        return fence_of(self._direct, KEY)


@pytest.fixture
def make_caller(
    fake_server: FakeServer, open_locks: Open, face: Face, direct: redis.Redis
) -> Callable[[float], Caller]:
    """`make_caller(10)`: with this socket timeout; one connection is idle and the scripts are loaded."""

    def make(timeout: float) -> Caller:
        options = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        caller = Caller(fake_server, open_locks(fake_server.url, OPTIONS=options), face, direct)
        caller.check()
        return caller

    return make


@pytest.fixture
def caller(make_caller: Callable[[float], Caller]) -> Caller:
    return make_caller(10.0)


@pytest.mark.parametrize("step", STEPS)
def test_step_with_a_malformed_reply_is_unanswered(caller: Caller, step: str) -> None:
    """[H15] [H21] It costs the connection; the message names alias and server."""
    for what, reply in NO_RESP.items():
        text = caller.fail_on(step, reply, what)
        assert "alias 'default': no answer from redis://127.0.0.1:" in text, what
        assert len(text) < 500, "what came may be long"


@pytest.mark.chaos
@pytest.mark.parametrize("step", STEPS)
def test_step_with_an_unfinished_reply_fails_after_the_socket_timeout(
    make_caller: Callable[[float], Caller], step: str
) -> None:
    """[F15] [L9] One attempt takes the socket timeout and no more, and the message says so."""
    caller = make_caller(2 * SILENCE)
    for what, reply in SILENT.items():
        text = caller.fail_on(step, reply, what)
        assert "no answer from redis://127.0.0.1:" in text, what
        assert re.search(r"[Tt]ime|silent", text) or what == "byte by byte", text


def test_step_on_connections_that_close_fails(caller: Caller) -> None:
    """[H24] A connection that was open before is worth another try at once; on its successor it is a failure."""
    for step in STEPS:
        for what, reply in CLOSED.items():
            text = caller.fail_on(step, reply, f"{step}: {what}")
            assert "no answer from redis://127.0.0.1:" in text, (step, what)
            assert "closed" in text.lower(), (step, what)


def test_step_on_a_connection_that_closes_once_is_tried_again(caller: Caller) -> None:
    """[H24] No error is raised: each step may be done twice."""
    for step in STEPS:
        grant = caller.prepare(step)
        caller.fake_server.reply_with(then_close(b"*5\r\n:1"))
        grant = caller.perform(step, grant)
        assert grant is not None, step
        if step == "extend":
            assert grant.remaining() > 50
        if step != "release":
            caller.perform("release", grant)
        caller.check()


def test_step_with_an_error_reply_raises_its_text(caller: Caller) -> None:
    """[L20] The message repeats the server's words, even unreadable ones; what the step did before goes."""
    for step in STEPS:
        for reply, pattern in ERRORS.items():
            text = caller.fail_on(step, reply, f"{step}: {reply!r}")
            assert re.search(pattern, text), (step, text)


@pytest.mark.chaos
def test_step_on_connections_that_are_never_served_fails(make_caller: Callable[[float], Caller]) -> None:
    """[L22] The server accepts connections and that is all: a load balancer without anything behind it."""
    caller = make_caller(2 * SILENCE)
    for step in STEPS:
        for what, greeting in GREETINGS.items():

            def refuse(greeting: Reply = greeting) -> None:
                caller.fake_server.on_connect = lambda client: greeting(client, b"")
                caller.fake_server.disconnect()

            text = caller.fail(step, refuse, f"{step}: {what}")
            assert re.search(r"alias 'default'.*(can't reach|no answer from) redis://127.0.0.1:", text), (step, what)


def test_reply_byte_by_byte_is_read(fake_server: FakeServer, open_locks: Open, face: Face, direct: redis.Redis) -> None:
    """The network may cut a reply anywhere."""
    for protocol in (2, 3):
        client = open_locks(fake_server.url, OPTIONS={"protocol": protocol, "socket_timeout": 10})
        fake_server.reply_with(dribble(0.0), times=-1)
        Caller(fake_server, client, face, direct).check()

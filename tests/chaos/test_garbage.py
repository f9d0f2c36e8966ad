"""A server that answers with something that is no answer, or not at all: behind the address is a web server, a proxy in
trouble, another protocol, a bug. Whatever it is, nobody is granted a lock by it, nobody hangs, the failure says what came,
and the next call finds the server well."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import Grant, Lock, LockBackendError, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.helpers import Async, Sync, fence_of
from tests.chaos.impostor import Impostor, Say, dribble, endless, then_close, then_silence
from tests.waiting import BUSY, eventually

Open = Callable[..., Locks]
Face = Sync | Async

KEY = "lock:{0}:k:a"

HTML = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html><h1>400 Bad Request</h1></html>\r\n"

NO_RESP: dict[str, bytes | Say] = {
    "html": HTML,
    "html, closed": then_close(HTML),
    "a TLS alert": then_close(b"\x15\x03\x01\x00\x02\x02\x46"),
    "no kind": b"OK\r\n",
    "an empty line": b"\r\n",
    "a length of letters": b"$abc\r\n",
    "an empty length": b"$\r\n",
    "a negative length": b"$-5\r\n",
    "a negative size": b"*-7\r\n",
    "a length past all numbers": b"$99999999999999999999999\r\n",
    "a size past all numbers": b"*99999999999999999999999\r\n",
    "a size past all memory": then_silence(b"*2147483647\r\n"),
    "a gigabyte announced": then_silence(b"$1073741824\r\n" + b"x" * 1000),
    "a number of letters": b":abc\r\n",
    "a text longer than its length": b"*2\r\n$1\r\nabcdef\r\n:1\r\n",
    "an array in arrays without end": b"*1\r\n" * 10_000 + b":1\r\n",
    "a line without end": endless(b"+" * 65536),
    "a number without end": endless(b":" + b"1" * 65536),
}
"""What is no RESP, or none that a server of ours has any use for."""

SILENT: dict[str, bytes | Say] = {
    "nothing": then_silence(b""),
    "a line that stops": then_silence(b"+" + b"x" * 1000),
    "half an answer": then_silence(b"*5\r\n:1\r\n"),
    "an array that stops": then_silence(b"*5\r\n:1\r\n$16\r\n1795229259"),
}
"""It stops in the middle."""

CLOSED: dict[str, bytes | Say] = {
    "nothing": then_close(b""),
    "half a line": then_close(b"*5"),
    "half an answer": then_close(b"*5\r\n:1\r\n"),
    "half a text": then_close(b"*5\r\n:1\r\n$16\r\n1795229259"),
}
"""It hangs up in the middle."""

ERRORS = {
    "unknown": (b"-ODD something happened\r\n", r"refuses \(ODD\): (ODD )?something happened"),
    "empty": (b"-\r\n", "refuses"),
    "no text": (b"-\xff\xfe\r\n", "refuses|no answer"),
    "of RESP3": (b"!21\r\nSYNTAX invalid syntax\r\n", "SYNTAX|no answer"),
}
"""An error instead of a reply."""


@pytest.fixture
def patience() -> float:
    """The socket timeout: for what isn't a matter of time it is never reached."""
    return 10.0


@pytest.fixture
def lock(impostor: Impostor, open_locks: Open, face: Face, patience: float) -> Lock:
    """Its server has been well so far, and one connection is idle."""
    client = open_locks(impostor.url, OPTIONS={"socket_timeout": patience, "socket_connect_timeout": patience})
    warm = face.acquire(client.lock("warm up"))
    assert warm is not None
    face.extend(warm, 30)
    face.release(warm)
    impostor.calls.clear()
    return client.lock("a", expire=30)


STEPS = ["acquire", "extend", "release"]


def fails(lock: Lock, face: Face, impostor: Impostor, step: str, say: bytes | Say, times: int = -1) -> str:
    """The step fails while the server talks so, in time; what is said of it."""
    grant = None if step == "acquire" else face.acquire(lock, timeout=0)
    impostor.say(say, times=times)
    begin = clock.now()
    with pytest.raises(LockBackendError) as caught:
        perform(lock, face, step, grant)
    assert clock.now() - begin < patience_of(lock) + BUSY
    assert (caught.value.alias, caught.value.key) == ("default", "a")
    assert caught.value.unanswered or "refuses" in str(caught.value)
    impostor.well()
    if grant is not None and step == "extend":
        assert not grant.lost
        face.extend(grant, 60)
        face.release(grant)
    return str(caught.value)


def patience_of(lock: Lock) -> float:
    return locks[lock.alias].settings.options["socket_timeout"]


def perform(lock: Lock, face: Face, step: str, grant: Grant | None) -> None:
    if grant is None:
        assert face.acquire(lock, timeout=0) is None, "that was no grant"
    elif step == "extend":
        face.extend(grant, 60)
    else:
        face.release(grant)


def well_again(lock: Lock, face: Face, direct: redis.Redis) -> None:
    """What an unanswered step left is cleared away, and a grant is what the server says it is."""
    eventually(lambda: not direct.exists(KEY))
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    assert fence_of(direct, KEY) == grant.fence
    face.extend(grant, 60)
    face.release(grant)
    assert not direct.exists(KEY)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "what",
    NO_RESP,
)
def test_what_is_no_answer_grants_nothing(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str, what: str
) -> None:
    """[H15] [H21] It costs the connection and leaves the step unanswered; the message shows alias and server."""
    text = fails(lock, face, impostor, step, NO_RESP[what])
    assert "alias 'default': no answer from redis://127.0.0.1:" in text
    assert len(text) < 500, "what came may be long"
    well_again(lock, face, direct)


@pytest.mark.chaos
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", SILENT)
@pytest.mark.parametrize("patience", [2 * SILENCE])
def test_a_server_that_stops_in_the_middle_is_given_up_in_time(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str, what: str
) -> None:
    """[F15] [L9] One attempt takes the socket timeout, no more, and the message says so."""
    text = fails(lock, face, impostor, step, SILENT[what])
    assert "no answer from redis://127.0.0.1:" in text
    assert re.search(r"[Tt]ime|silent", text)
    well_again(lock, face, direct)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", CLOSED)
def test_a_server_that_hangs_up_in_the_middle(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str, what: str
) -> None:
    """[H24] On a connection that was open before it is worth another try at once; on that one's successor it is a
    failure, which says that the connection was closed."""
    text = fails(lock, face, impostor, step, CLOSED[what])
    assert "no answer from redis://127.0.0.1:" in text
    assert "closed" in text.lower()
    well_again(lock, face, direct)


@pytest.mark.parametrize("step", STEPS)
def test_once_hung_up_is_tried_again(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str
) -> None:
    """[H24] Nobody hears of it, and the step is done once more: each may be done twice."""
    grant = None if step == "acquire" else face.acquire(lock, timeout=0)
    impostor.say(then_close(b"*5\r\n:1"))
    if grant is None:
        grant = face.acquire(lock, timeout=0)
        assert grant is not None
        assert fence_of(direct, KEY) == grant.fence
    if step == "extend":
        face.extend(grant, 60)
        assert grant.remaining() > 50
    face.release(grant)
    well_again(lock, face, direct)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", ERRORS)
def test_an_error_instead_of_an_answer(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str, what: str
) -> None:
    """[L20] What a server refuses is told in its words, even if these are none; what it did before is cleared away."""
    say, pattern = ERRORS[what]
    text = fails(lock, face, impostor, step, say)
    assert re.search(pattern, text), text
    well_again(lock, face, direct)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "greeting", [then_close(b""), then_close(HTML), then_silence(b"")], ids=["closed", "html", "silence"]
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("patience", [2 * SILENCE])
def test_a_server_that_never_gets_to_an_answer(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str, greeting: Say
) -> None:
    """[L22] It accepts connections and that is all: a load balancer without anything behind it."""
    grant = None if step == "acquire" else face.acquire(lock, timeout=0)
    impostor.greet = lambda end: greeting(end, b"")
    impostor.cut()
    begin = clock.now()
    with pytest.raises(LockBackendError, match=r"alias 'default'.*(can't reach|no answer from) redis://127.0.0.1:"):
        perform(lock, face, step, grant)
    assert clock.now() - begin < patience_of(lock) + BUSY
    impostor.well()
    if grant is not None and step == "extend":
        face.extend(grant, 60)
        face.release(grant)
    well_again(lock, face, direct)


@pytest.mark.parametrize("protocol", [2, 3])
def test_an_answer_byte_by_byte_is_an_answer(
    impostor: Impostor, open_locks: Open, face: Face, direct: redis.Redis, protocol: int
) -> None:
    """Wherever the network cuts it."""
    lock = open_locks(impostor.url, OPTIONS={"protocol": protocol, "socket_timeout": 10}).lock("a", expire=30)
    impostor.say(dribble(0.0), times=-1)
    well_again(lock, face, direct)


@pytest.mark.chaos
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("patience", [2 * SILENCE])
def test_a_server_that_dribbles_has_no_more_time(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, step: str
) -> None:
    """[L9] [F15] It is never silent for as long as the socket timeout, and would hold up its caller for ever."""
    text = fails(lock, face, impostor, step, dribble(SILENCE / 2, b"+" + b"x" * 200 + b"\r\n"))
    assert "no answer" in text
    well_again(lock, face, direct)

"""Packing requests; parsing replies in chunks of any size, and malformed data."""

from __future__ import annotations

import asyncio
import math
from functools import lru_cache
from typing import Any

import pytest

from django_redis_locks.backends.redis import RedisBackend, resp, scripts
from django_redis_locks.backends.redis.backend import PreparedRequest
from django_redis_locks.backends.redis.resp import (
    COMMON_REPLIES,
    MAX_DEPTH,
    NOT_SIMPLE,
    ProtocolError,
    Reader,
    ServerError,
    pack,
    read_simple,
)
from django_redis_locks.backends.redis.scripts import by_sha, by_source, script
from django_redis_locks.core.commands import Command
from django_redis_locks.core.steps import positional
from django_redis_locks.core.steps.loads import ClearLoads, DeferStore
from django_redis_locks.core.steps.locks import AcquireLock, LockWaiter, ReleaseLock, RenewLocks
from django_redis_locks.core.steps.records import PutRecord
from tests.resp import Frames

REPLIES: list[tuple[bytes, Any]] = [
    (b":1\r\n", 1),
    (b":-42\r\n", -42),
    (b":9223372036854775807\r\n", 2**63 - 1),
    (b"+OK\r\n", b"OK"),
    (b"+\r\n", b""),
    (b"$0\r\n\r\n", b""),
    (b"$3\r\nabc\r\n", b"abc"),
    (b"$6\r\na\r\nb\r\n\r\n", b"a\r\nb\r\n"),
    (b"$1\r\n\n\r\n", b"\n"),
    (b"$2\r\n\r\r\r\n", b"\r\r"),
    (b"$4\r\n\r\n\r\n\r\n", b"\r\n\r\n"),
    (b"$120\r\n" + b"x" * 120 + b"\r\n", b"x" * 120),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n:1\r\n:2\r\n", [1, 2]),
    (b"*5\r\n:1\r\n$16\r\n1785000000000000\r\n:1\r\n:0\r\n:0\r\n", [1, b"1785000000000000", 1, 0, 0]),
    (b"*3\r\n$3\r\n:1\n\r\n$-1\r\n*1\r\n+x\r\n", [b":1\n", None, [b"x"]]),
    (b"*2\r\n$2\r\n:1\r\n$4\r\n*1\r\n\r\n", [b":1", b"*1\r\n"]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
    (b",1.5\r\n", 1.5),
    (b",inf\r\n", math.inf),
    (b"(3492890328409238509324850943850943825024385\r\n", 3492890328409238509324850943850943825024385),
    (b"=7\r\ntxt:abc\r\n", b"abc"),
    (b"%1\r\n+a\r\n:1\r\n", {b"a": 1}),
    (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    (b"|1\r\n+ttl\r\n:3\r\n*1\r\n:7\r\n", [7]),
]
"""Each type of reply that a script may return, in RESP2 and RESP3."""

PUSH = b">3\r\n+message\r\n$1\r\na\r\n$4\r\n:1\r\n\r\n"

GARBAGE = [
    *(b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28", b"\r\n", b"1\r\n", b":\r\n", b":a\r\n"),
    *(b": 1\r\n", b":1_0\r\n", b":99999999999999999999999\r\n", b"$x\r\n", b"$-2\r\n", b"$+3\r\nabc\r\n"),
    *(b"$9999999999\r\n", b"$99999999999999999999\r\n", b"*99999999999\r\n", b"*70000\r\n", b"*2\r\n:1\r\nx\r\n"),
    *(b"$3\r\nabcdef\r\n", b"$3\r\na\r\nbc\r\n", b"#x\r\n", b",x\r\n", b"_x\r\n", b"%1\r\n*0\r\n:1\r\n"),
    *(b"*1\r\n" * (MAX_DEPTH + 2) + b":1\r\n", b"*1\r\n" + PUSH, b"+" + b"x" * 70_000),
]


def test_reply_that_announces_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E4] Also if each of its members is small enough: a process out of memory would lose its locks."""
    with pytest.raises(ProtocolError):
        Reader().feed(b"$500000000\r\n")
    monkeypatch.setattr(resp, "MAX_REPLY_BYTES", 100_000)
    reader, member = Reader(), b"$90000\r\n" + b"x" * 90_000 + b"\r\n"
    assert reader.feed(b"*9\r\n" + member) == []
    with pytest.raises(ProtocolError, match="more than 100000 bytes"):
        reader.feed(member)


def test_reply_of_each_kind_is_read_whole_and_in_two_parts() -> None:
    for data, value in REPLIES:
        assert Reader().feed(data) == [value]
        assert (COMMON_REPLIES.get(data, NOT_SIMPLE) is NOT_SIMPLE) or COMMON_REPLIES[data] == value
        assert read_simple(data) in (NOT_SIMPLE, value)
        for cut in range(1, len(data)):
            reader = Reader()
            assert reader.feed(data[:cut]) == [], (data, cut)
            assert read_simple(data[:cut]) is NOT_SIMPLE, (data, cut)
            assert not reader.idle
            assert reader.feed(data[cut:]) == [value], (data, cut)
            assert reader.idle


def test_bulk_string_in_one_piece_is_read_at_once() -> None:
    """A value may be long: it isn't split into lines."""
    for text in (b"", b"abc", b"a\r\nb\r\n", b"$3\r\nabc\r\n", b"x" * 100_000):
        data = b"$%d\r\n%b\r\n" % (len(text), text)
        assert read_simple(data) == text
        for other in (data[:-1], data + b":1\r\n", data[:-2] + b"xx", b"$" + data):
            assert read_simple(other) is NOT_SIMPLE


def test_push_is_no_reply() -> None:
    """[H20] Before, between and after replies, whole and in chunks."""
    data = PUSH + b":1\r\n" + PUSH + PUSH + b":2\r\n" + PUSH
    assert Reader().feed(data) == [1, 2]
    for cut in range(1, len(data)):
        reader = Reader()
        assert reader.feed(data[:cut]) + reader.feed(data[cut:]) == [1, 2]
        assert reader.idle


def test_bytes_that_are_no_reply_raise_ProtocolError_at_once() -> None:
    """[L9] Neither a wait for more bytes nor a wrong reply."""
    for data in GARBAGE:
        with pytest.raises(ProtocolError):
            Reader().feed(data)
        reader = Reader()
        with pytest.raises(ProtocolError):
            [reader.feed(bytes([byte])) for byte in data]


def test_long_text_is_joined_once() -> None:
    """The time for a reply of some megabytes grows linearly with its length."""
    text = b"\r\n".join([b"x" * 1000] * 4000)
    data = b"*2\r\n:1\r\n$%d\r\n%b\r\n" % (len(text), text)
    reader = Reader()
    joined = 0
    for begin in range(0, len(data), 8192):
        before = len(reader._parts)
        replies = reader.feed(data[begin : begin + 8192])
        joined += len(reader._parts) <= before
    assert replies == [[1, text]]
    assert joined < 5


def test_error_reply_is_a_value() -> None:
    """Also inside an array, as a script may return it."""
    for data, code, text in [
        (b"-NOSCRIPT No matching script.\r\n", "NOSCRIPT", "No matching script."),
        (b"-ERR unknown command\r\n", "ERR", "unknown command"),
        (b"-oops\r\n", "", "oops"),
        (b"-\xff\r\n", "", "\ufffd"),
        (b"!9\r\nOOM a\r\nb!\r\n", "OOM", "a\r\nb!"),
    ]:
        (error,) = Reader().feed(data)
        (inside,) = Reader().feed(b"*1\r\n" + data)
        for found in (error, inside[0]):
            assert type(found) is ServerError
            assert (found.code, str(found)) == (code, text)


# Requests


def parts(request: bytes) -> list[bytes]:
    (frame,) = Frames().feed(request)
    assert frame.raw == request
    return list(frame.value)


def prepared_requests(command: Command[Any]) -> list[bytes]:
    """What a prepared command sends for a thread, and for a task."""
    prepared = PreparedRequest(RedisBackend("redis://host", {}), command.name, command.keys)
    sent: list[bytes] = []
    prepared._execute, prepared._aexecute = sent.append, lambda data: asyncio.sleep(0, sent.append(data))
    first, *rest = positional(command.args)
    prepared.send(first, prepared.packed(*rest))
    asyncio.run(prepared.asend(first, prepared.packed_once(*rest)))
    return sent


def test_messages_of_a_request_come_before_its_reply_if_a_ping_does() -> None:
    """The server writes to its clients in the reverse order in which they got their first byte of output."""
    prepared = PreparedRequest(RedisBackend("redis://host", {}), "lock/release", ("lock", "waiters", "fence"))
    sent: list[tuple[bytes, int]] = []
    prepared._execute = lambda request, replies=1: sent.append((request, replies))
    prepared.send("token")
    prepared.send("token", messages_first=True)
    (plain, _), _ = sent
    assert sent == [(plain, 1), (pack("PING") + plain, 2)]


def test_request_calls_a_script_with_lengths_in_bytes() -> None:
    several: dict[str, tuple[Any, list[Any]]] = {
        "load/clear": (ClearLoads(), []),
        "lock/release": (ReleaseLock("t"), ["t"]),
        "lock/renew": (RenewLocks(7, ("1", "ä")), [7, "1", "ä"]),
        "record/put": (PutRecord("töken", -1, 30000, "x" * 200), ["töken", -1, 30000, "x" * 200]),
        "lock/acquire": (
            AcquireLock("t", 1, "höst\r\n$1", LockWaiter("", "a", 0, 2)),
            ["t", 1, "höst\r\n$1", "", "a", 0, 2],
        ),
    }
    for name, (args, values) in several.items():
        command: Command[Any] = Command(name, ("lock:{0}:k:ä", "b"), args, int)
        expected = [b"2", "lock:{0}:k:ä".encode(), b"b", *(str(value).encode() for value in values)]
        for _ in range(2):  # the second time much of it is cached
            assert parts(by_sha(command)) == [b"EVALSHA", script(name).sha.encode(), *expected]
            assert parts(by_source(command)) == [b"EVAL", script(name).source.encode(), *expected]
        if name in ("lock/release", "record/put"):
            assert prepared_requests(command) == [by_sha(command)] * 2


def test_requests_of_records_and_loads_evict_no_cached_arguments_of_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """[K11] Keys and nonces of jobs don't recur, and must not displace cached arguments."""
    lock: Command[Any] = Command("lock/release", ("lock:{0}:k:recurring",), ReleaseLock("t"), int)
    packed_heads: list[tuple[str, ...]] = []
    real_head = scripts._head

    def head(name: str, keys: tuple[str, ...], args: int, sharded: bool) -> bytes:
        packed_heads.append(keys)
        return real_head(name, keys, args, sharded)

    monkeypatch.setattr(scripts, "_cached_heads", {kind: lru_cache(1024)(head) for kind in ("lock", "load")})
    by_sha(lock)
    for number in range(2000):
        by_sha(Command("record/put", (f"lock:{{0}}:k:{number}", "b"), PutRecord(f"nonce{number}", 0, 30000, "{}"), int))
        by_sha(Command("load/defer", (f"{{{number}}}",), DeferStore("t", 0), int))
    by_sha(lock)
    assert packed_heads.count(lock.keys) == 1
    values = resp.packed.__self__  # type: ignore[attr-defined]
    assert not [value for value in values if str(value).startswith("nonce")]  # threads of earlier tests add others


def test_cache_of_packed_arguments_is_bounded() -> None:
    """[L43] Neither long values nor thousands of different ones stay in memory."""
    known = resp.packed.__self__  # type: ignore[attr-defined]
    long = "secret" * 100
    assert resp.packed(long) == pack(long)[4:]
    assert long not in known
    for number in range(3 * known.MAX_ENTRIES):
        resp.packed(f"holder {number}")
    assert len(known) <= known.MAX_ENTRIES

"""Frames: whatever comes in whatever pieces comes out whole, as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resp import ErrorReply, Frames, Push

VALUES: list[tuple[bytes, Any]] = [
    (b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\xff\r\r\n", [b"ECHO", b"\r\n\xff\r"]),
    (b"+OK\r\n", b"OK"),
    (b"-ERR no\r\n", ErrorReply(b"ERR no")),
    (b":-12\r\n", -12),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b",1.5\r\n", b"1.5"),
    (b"(123456789012345678901\r\n", b"123456789012345678901"),
    (b"=7\r\ntxt:abc\r\n", b"txt:abc"),
    (b"!6\r\nERR no\r\n", ErrorReply(b"ERR no")),
    (b"%1\r\n+a\r\n*1\r\n:1\r\n", [b"a", [1]]),
    (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    (b">2\r\n+message\r\n$1\r\na\r\n", Push([b"message", b"a"])),
    (b"|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n", b"a"),
]
STREAM = b"".join(raw for raw, _ in VALUES)


def test_frames_in_pieces_of_any_size_are_parsed_whole() -> None:
    for size in (1, 2, 3, 7, 16, len(STREAM)):
        frames = Frames()
        pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
        found = [frame for piece in pieces for frame in frames.feed(piece)]
        assert [(frame.raw, frame.value) for frame in found] == VALUES, size
        assert [type(frame.value) for frame in found] == [type(value) for _, value in VALUES], size


def test_bytes_other_than_resp_raise_ValueError() -> None:
    with pytest.raises(ValueError, match="GET / HTTP"):
        list(Frames().feed(b"GET / HTTP/1.1\r\n"))

"""A parser of RESP, the protocol of Redis. A frame is one request, one reply, or one message that the server pushed.

A frame has its bytes, to be forwarded unchanged, and its value.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple


class Push(list[Any]):
    """A message that the server pushes, in RESP3."""


class ErrorReply(bytes):
    """An error reply."""


class Frame(NamedTuple):
    raw: bytes
    value: Any


class Frames:
    """Collects received bytes and yields whole frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these bytes complete.

        Raises:
            ValueError: the bytes are not RESP.
        """
        self._rest += data
        while self._rest:
            try:
                value, end = _parse(self._rest, 0)
            except _IncompleteError:
                return
            raw, self._rest = self._rest[:end], self._rest[end:]
            yield Frame(raw, value)


class Stream:
    """Reads and writes the frames of one end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._frames = Frames()
        self._ready: deque[Frame] = deque()
        self.writer = writer

    async def next(self) -> Frame | None:
        """The next frame; None if the other side has closed."""
        while not self._ready:
            try:
                data = await self._reader.read(65536)
            except OSError:
                return None
            if not data:
                return None
            self._ready.extend(self._frames.feed(data))
        return self._ready.popleft()

    def write(self, raw: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(raw)

    def close(self) -> None:
        """Close the connection after the written bytes were sent: for the peer at once, even if a forked process shares
        the socket."""
        transport = self.writer.transport
        sent = transport.get_write_buffer_size() == 0
        transport.close()
        if sent:
            with suppress(OSError):  # already closed
                transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class _IncompleteError(Exception):
    """The frame isn't complete yet."""


def _parse(data: bytes, at: int) -> tuple[Any, int]:
    """The value that begins at this offset, and the offset of its end."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        raise _IncompleteError
    kind, line, end = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    match kind:
        case b"+" | b"," | b"(":
            return line, end
        case b"-":
            return ErrorReply(line), end
        case b":":
            return int(line), end
        case b"#":
            return line == b"t", end
        case b"_":
            return None, end
        case b"$" | b"=" | b"!":
            return _text(data, kind, int(line), end)
        case b"*" | b"~" | b">" | b"%" | b"|":
            return _many(data, kind, int(line), end)
    raise ValueError(f"no RESP: {data[at:line_end]!r}")


def _text(data: bytes, kind: bytes, size: int, begin: int) -> tuple[Any, int]:
    if size < 0:
        return None, begin
    end = begin + size
    if len(data) < end + 2:
        raise _IncompleteError
    text = data[begin:end]
    return (ErrorReply(text) if kind == b"!" else text), end + 2


def _many(data: bytes, kind: bytes, size: int, at: int) -> tuple[Any, int]:
    if size < 0:
        return None, at
    items = []
    for _ in range(2 * size if kind in b"%|" else size):
        item, at = _parse(data, at)
        items.append(item)
    if kind == b"|":  # an attribute belongs to the value behind it
        return _parse(data, at)
    return (Push(items) if kind == b">" else items), at

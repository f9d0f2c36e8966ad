"""RESP, the protocol of Redis: packs requests and parses replies.

One parser serves threads and event loops, RESP2 and RESP3. Malformed data, and lengths that are too large for the
replies to this package, raise an error at once, instead of waiting for bytes that never arrive.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CRLF: Final = b"\r\n"

MAX_REPLY_BYTES: Final = 128 * 2**20
"""The largest number of bytes of a reply, which may contain a cached value. It bounds the memory, whatever length the
server announces."""

RECV_BUFFER: Final = 65536
"""The number of bytes that one ``recv`` reads. Most replies have about five bytes; those with a cached value have
more."""

MAX_MEMBERS: Final = 2**16
"""The largest number of members of an array."""

MAX_DEPTH: Final = 16
"""The largest nesting depth of arrays."""


SURPLUS_DATA: Final = "the server sent more data than was requested"


class ProtocolError(Exception):
    """The received bytes aren't RESP, or don't belong to a request."""


class ServerError(Exception):
    """An error reply. Parsing returns it as a value.

    Attributes:
        code: the first word, such as OOM; "" if that word isn't in capitals.
    """

    def __init__(self, text: str) -> None:
        code, _, rest = text.partition(" ")
        coded = code.isupper()
        super().__init__(rest if coded and rest else text)
        self.code = code if coded else ""


class _Push(list[Any]):
    """A RESP3 push: data that the server sends without a request."""


class _IncompleteError(Exception):
    """The data ends inside a reply; at least ``missing`` bytes are missing."""

    def __init__(self, missing: int = 1) -> None:
        self.missing = missing


# Requests


def pack(*values: str | int | bytes) -> bytes:
    """Return a request as bytes. hiredis's packer isn't used: it crashes the process when a signal handler raises
    inside it."""
    return b"*%d\r\n" % len(values) + pack_values(values)


def pack_values(values: Iterable[str | int | bytes]) -> bytes:
    """Return arguments as RESP bulk strings."""
    packed = []
    for value in values:
        data = value if isinstance(value, bytes) else str(value + 0 if isinstance(value, int) else value).encode()
        packed.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(packed)


class _Packed(dict[Any, bytes]):
    """A cache of packed arguments. Most arguments recur, such as a lease, a kind or a holder."""

    MAX_ENTRIES = 2048
    MAX_BYTES = 100

    def __missing__(self, value: str | int | bytes) -> bytes:
        packed = pack_values((value,))
        if len(packed) <= self.MAX_BYTES:  # longer arguments are cached values, which rarely recur
            if len(self) >= self.MAX_ENTRIES:
                self.clear()
            self[value] = packed
        return packed


packed: Callable[[Any], bytes] = _Packed().__getitem__
"""``pack_values`` of one argument, with a cache."""


# Replies

COMMON_REPLIES: Final[dict[bytes, Any]] = {b":0\r\n": 0, b":1\r\n": 1, b":2\r\n": 2, b"$-1\r\n": None, b"_\r\n": None}
"""The most common replies, which are looked up instead of parsed."""

_NUMBERS: Final = {b":%d" % number: number for number in range(-2, 100)}
_SIZES: Final = {b"$%d" % number: number for number in range(100)}
_COUNTS: Final = {b"*%d" % number: number for number in range(1, 20)}
"""Lines that are looked up, too."""

_integer = re.compile(rb"-?\d{1,19}").fullmatch
_big_number = re.compile(rb"[-+]?\d{1,400}").fullmatch
_size = re.compile(rb"\d{1,10}").fullmatch
_TYPE_BYTES: Final = frozenset(b":+-$*_,#(!=%~>|")


def read_simple(data: bytes) -> Any:
    """Parse bytes that are one complete integer, bulk string or short array: a fast path for the usual replies.

    Returns:
        The reply; ``NOT_SIMPLE`` if the bytes are anything else.

    Raises:
        ProtocolError: the data is not RESP.
    """
    if data[:1] == b":" and data[-2:] == CRLF and (digits := data[1:-2]).isdigit():
        return int(digits)
    if data[:1] == b"$":  # it may be long: don't split it into lines
        end = data.find(CRLF, 0, 13)
        size = data[1 : max(end, 1)]
        whole = size.isdigit() and len(data) == end + int(size) + 4 and data[-2:] == CRLF
        return data[end + 2 : -2] if whole else NOT_SIMPLE
    lines = data.split(CRLF)
    if lines[0] in _COUNTS and not lines[-1]:
        last = len(lines) - 1
        try:
            reply, end = _members(lines, 1, last, _COUNTS[lines[0]], 0)
        except _IncompleteError:
            return NOT_SIMPLE
        if end == last:
            return reply
    return NOT_SIMPLE


NOT_SIMPLE: Final = object()


class Reader:
    """Parses replies from chunks of bytes. Pushes are discarded."""

    __slots__ = ("_missing", "_parts", "_size_so_far")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = self._size_so_far = 0

    @property
    def idle(self) -> bool:
        """Whether the data so far ends with a complete reply."""
        return not self._parts

    @property
    def replying(self) -> bool:
        """Whether the incomplete data begins a reply, rather than a push or an attribute."""
        return bool(self._parts) and self._parts[0][:1] not in {b">", b"|"}

    def feed(self, data: bytes) -> list[Any]:
        """Return the replies that these bytes complete; an error reply is a ``ServerError``.

        Raises:
            ProtocolError: the data is not RESP, and nothing after it can be parsed.
        """
        if not self._parts and data in COMMON_REPLIES:
            return [COMMON_REPLIES[data]]
        if self._parts:
            data = self._completed(data)
        lines = data.split(CRLF)
        last, at = len(lines) - 1, 0
        replies: list[Any] = []
        while at < last:
            line = lines[at]
            if line in _NUMBERS:
                replies.append(_NUMBERS[line])
                at += 1
                continue
            try:
                if line in _COUNTS:
                    value, end = _members(lines, at + 1, last, _COUNTS[line], 0)
                else:
                    value, end = _value(lines, at, last, 0)
            except _IncompleteError as incomplete:
                self._keep_partial(CRLF.join(lines[at:]), incomplete.missing)
                return replies
            if type(value) is not _Push:
                replies.append(value)
            at = end
        if lines[last]:
            _check_type_byte(lines[last])
            self._keep_partial(lines[last], 1)
        return replies

    def _completed(self, data: bytes) -> bytes:
        """Return the incomplete reply with these bytes behind it, or b"" if it is certainly still incomplete."""
        self._parts.append(data)
        self._missing -= len(data)
        self._size_so_far += len(data)
        if self._size_so_far > MAX_REPLY_BYTES + RECV_BUFFER:
            raise ProtocolError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
        if self._missing > 0:
            return b""
        data = b"".join(self._parts)
        self._parts = []
        return data

    def _keep_partial(self, data: bytes, missing: int) -> None:
        self._parts, self._missing, self._size_so_far = [data], missing, len(data)


def _check_type_byte(line: bytes) -> None:
    if line[0] not in _TYPE_BYTES or len(line) > 2**16:
        raise ProtocolError(f"not RESP: {line[:40]!r}")


def _value(lines: list[bytes], at: int, last: int, depth: int) -> tuple[Any, int]:
    """Return the value that begins at ``lines[at]``, and the index of the line after it. ``lines[last]`` is
    incomplete."""
    if at >= last:
        if lines[last]:
            _check_type_byte(lines[last])
        raise _IncompleteError
    line = lines[at]
    type_byte, rest = line[:1], line[1:]
    if type_byte == b":" and _integer(rest):
        return int(rest), at + 1
    if type_byte in {b"$", b"=", b"!"}:
        if rest == b"-1":
            return None, at + 1
        text, at = _bulk(lines, at + 1, last, _length(line, MAX_REPLY_BYTES))
        if type_byte == b"=":  # its first four bytes are the format
            text = text[4:]
        return (_server_error(text) if type_byte == b"!" else text), at
    if type_byte in {b"*", b"~", b">", b"%", b"|"}:
        if rest == b"-1":
            return None, at + 1
        if depth == MAX_DEPTH or (type_byte in {b">", b"|"} and depth):
            raise ProtocolError(f"a reply is nested too deeply: {line!r}")
        return _aggregate(lines, at + 1, last, depth, type_byte, _length(line, MAX_MEMBERS))
    return _simple(type_byte, rest), at + 1


def _simple(type_byte: bytes, rest: bytes) -> Any:
    if type_byte == b"+":
        return rest
    if type_byte == b"-":
        return _server_error(rest)
    if type_byte == b"_" and not rest:
        return None
    if type_byte == b"#" and rest in {b"t", b"f"}:
        return rest == b"t"
    if type_byte == b"(" and _big_number(rest):
        return int(rest)
    if type_byte == b",":
        try:
            return float(rest)
        except ValueError:
            pass
    raise ProtocolError(f"not RESP: {(type_byte + rest)[:40]!r}")


def _server_error(text: bytes) -> ServerError:
    return ServerError(text.decode(errors="replace"))


def _length(line: bytes, maximum: int) -> int:
    if not _size(line, 1) or (length := int(line[1:])) > maximum:
        raise ProtocolError(f"not RESP: {line[:40]!r}")
    return length


def _bulk(lines: list[bytes], at: int, last: int, length: int) -> tuple[bytes, int]:
    """Return a bulk string, which may contain CRLF, and the index of the line after it."""
    end, found = at, len(lines[at])
    while found < length and end < last:
        end += 1
        found += 2 + len(lines[end])
    if end == last:  # of its CRLF only the first byte may have arrived
        if found > length + 1 or (found == length + 1 and not lines[end].endswith(b"\r")):
            raise ProtocolError(f"a bulk string of {length} bytes isn't followed by CRLF")
        raise _IncompleteError(length + 2 - found)
    if found != length:
        raise ProtocolError(f"a bulk string of {length} bytes isn't followed by CRLF")
    return (lines[at] if end == at else CRLF.join(lines[at : end + 1])), end + 1


def _aggregate(lines: list[bytes], at: int, last: int, depth: int, type_byte: bytes, length: int) -> tuple[Any, int]:
    members, at = _members(lines, at, last, 2 * length if type_byte in {b"%", b"|"} else length, depth)
    if type_byte == b"|":  # an attribute of the value after it
        return _value(lines, at, last, depth)
    if type_byte == b"%":
        return _dict(members), at
    return (_Push(members) if type_byte == b">" else members), at


def _members(lines: list[bytes], at: int, last: int, length: int, depth: int) -> tuple[list[Any], int]:
    """Return ``length`` values and the index of the line after them. Integers and short strings, which most replies
    consist of, are parsed inline."""
    if length > last - at + 64:  # each has a line at least: don't parse all of them again with every chunk
        raise _IncompleteError(3 * (length - last + at))
    members: list[Any] = [None] * length
    for index in range(length):
        if at + 1 < last:
            line = lines[at]
            if line in _NUMBERS:
                members[index] = _NUMBERS[line]
                at += 1
                continue
            if line in _SIZES and len(text := lines[at + 1]) == _SIZES[line]:
                members[index] = text
                at += 2
                continue
            if line[:1] == b":" and _integer(line, 1):
                members[index] = int(line[1:])
                at += 1
                continue
        members[index], at = _value(lines, at, last, depth + 1)
    return members, at


def _dict(members: list[Any]) -> dict[Any, Any]:
    try:
        return dict(zip(members[::2], members[1::2], strict=True))
    except TypeError:
        raise ProtocolError("a map has a collection as a key") from None

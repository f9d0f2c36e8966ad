"""What a connection's socket must do that redis-py doesn't have it do."""

from __future__ import annotations

import _socket
import os
import socket
import ssl
import struct
from typing import Any

_ABORT = struct.pack("ii", 1, 0)


def set_abortive_close(sock: Any) -> None:
    """When it is closed, bytes that haven't left yet never will."""
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        except OSError:
            pass  # a unix socket: nothing of it travels any more


RECV_SLICE = 0.02
"""A look at a socket lasts so long; then it is taken anew, until its time is up. A signal begins a look anew as well: one
that comes again and again would otherwise put off its end for ever."""


def use_kernel_timeout(sock: Any, timeout: float | None) -> float | None:
    """Have a socket wait by itself for bytes and for room. Returns its timeout as Python is to know it: None if it does,
    and ``recv`` then raises BlockingIOError after a ``RECV_SLICE``.

    Python would ask the operating system whether it can send before it sends, and whether there is anything to receive
    before it receives, a tenth of the time of an exchange. So the timeout is the operating system's, if the socket is
    one of its own: one of gevent waits by itself, and TLS in Python knows no other way.
    """
    if timeout is None or getattr(type(sock), "recv", None) is not _socket.socket.recv:
        return timeout
    try:
        for option, seconds in (socket.SO_RCVTIMEO, min(timeout, RECV_SLICE)), (socket.SO_SNDTIMEO, timeout):
            whole = int(seconds)
            value = struct.pack("@ll", whole, max(int((seconds - whole) * 1e6), 0 if whole else 1))
            sock.setsockopt(socket.SOL_SOCKET, option, value)
            whole, micros = struct.unpack("@ll", sock.getsockopt(socket.SOL_SOCKET, option, len(value)))
            if abs(whole + micros / 1e6 - seconds) > RECV_SLICE:  # it counts in other units here
                return timeout
    except (OSError, struct.error):
        return timeout
    sock.settimeout(None)
    return None


def read_available(sock: Any) -> bytes:
    """What can be read from it without waiting. Its timeout is gone then.

    Raises:
        OSError: the other side has closed it.
    """
    sock.settimeout(0)
    try:
        data: bytes = sock.recv(65536)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return b""
    if not data:
        raise ConnectionResetError("the server closed the connection")
    return data


def has_unread_data(sock: Any, python_timeout: float | None) -> bool:
    """Whether the other side of an idle connection closed it, or said what nobody asked for."""
    try:
        said = read_available(sock)
        sock.settimeout(python_timeout)
    except OSError:
        return True
    return bool(said)


def interrupt(sock: Any) -> None:
    """Have whoever reads from it, in another thread, find it closed."""
    if sock is not None:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # closed already


def close_inherited(sock: Any) -> None:
    """A forked child closes its copy of the parent's socket, without a word to the server."""
    if sock is not None:
        plain = getattr(sock, "_sock", sock)  # asyncio wraps it
        try:
            os.close(plain.detach())
        except OSError:
            pass

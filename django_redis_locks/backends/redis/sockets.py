"""Socket options and checks that redis-py doesn't provide."""

from __future__ import annotations

import _socket
import os
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

_ABORT = struct.pack("ii", 1, 0)


def set_abortive_close(sock: Any) -> None:
    """Set SO_LINGER 0: closing the socket discards unsent bytes."""
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        except OSError:
            pass  # a Unix socket: unsent bytes are discarded anyway


RECV_SLICE = 0.02
"""Seconds that one ``recv`` blocks; it is repeated until the timeout of the request. After a signal, Python repeats the
call with the kernel's full timeout, so repeated signals would otherwise delay the timeout for ever."""


def use_kernel_timeout(sock: Any, timeout: float | None) -> float | None:
    """Let the kernel enforce a socket's timeout (SO_RCVTIMEO, SO_SNDTIMEO) instead of Python.

    With its own timeout, Python polls the socket before each ``send`` and ``recv``, which takes a tenth of the time of
    a request. Only plain sockets are changed: gevent's sockets wait in gevent's event loop, and TLS sockets need
    Python's timeout.

    Args:
        timeout: seconds; None is unlimited.

    Returns:
        The timeout that Python enforces from now on. It is None if the kernel enforces the timeout; ``recv`` then
        raises BlockingIOError after ``RECV_SLICE``.
    """
    if timeout is None or getattr(type(sock), "recv", None) is not _socket.socket.recv:
        return timeout
    try:
        for option, seconds in (socket.SO_RCVTIMEO, min(timeout, RECV_SLICE)), (socket.SO_SNDTIMEO, timeout):
            whole = int(seconds)
            value = struct.pack("@ll", whole, max(int((seconds - whole) * 1e6), 0 if whole else 1))
            sock.setsockopt(socket.SOL_SOCKET, option, value)
            whole, micros = struct.unpack("@ll", sock.getsockopt(socket.SOL_SOCKET, option, len(value)))
            if abs(whole + micros / 1e6 - seconds) > RECV_SLICE:  # this platform uses other units
                return timeout
    except (OSError, struct.error):
        return timeout
    sock.settimeout(None)
    return None


def read_available(sock: Any) -> bytes:
    """Return the bytes that can be read without blocking. Sets the socket's timeout to 0.

    Raises:
        OSError: the server has closed the connection.
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
    """Return whether an idle connection is unusable: the server has closed it, or sent data without a request."""
    try:
        data = read_available(sock)
        sock.settimeout(python_timeout)
    except OSError:
        return True
    return bool(data)


def interrupt(sock: Any) -> None:
    """Shut a socket down, which ends a blocked ``recv`` of another thread."""
    if sock is not None:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # closed already


def close_inherited(sock: Any) -> None:
    """Close a forked child's copy of a socket without sending anything to the server."""
    if sock is None:
        return
    plain = getattr(sock, "_sock", sock)  # asyncio wraps it
    try:
        try:
            os.close(plain.detach())
        except TypeError:  # uvloop will close the number of the descriptor: until then no other file may get it
            with Path(os.devnull).open("rb") as null:
                os.dup2(null.fileno(), plain.fileno(), inheritable=False)
    except OSError:
        pass

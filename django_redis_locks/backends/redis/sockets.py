"""What a connection's socket must do that redis-py doesn't have it do."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

_DROP = struct.pack("ii", 1, 0)


def linger(sock: Any) -> None:
    """When it is closed, bytes that haven't left yet never will."""
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
        except OSError:
            pass  # a unix socket: nothing of it travels any more


def interrupt(sock: Any) -> None:
    """Have whoever reads from it, in another thread, find it closed."""
    if sock is not None:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # closed already


def close_copy(sock: Any) -> None:
    """A forked child closes its copy of the parent's socket, without a word to the server."""
    if sock is not None:
        plain = getattr(sock, "_sock", sock)  # asyncio wraps it
        try:
            os.close(plain.detach())
        except OSError:
            pass

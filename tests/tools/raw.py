"""Somebody who speaks RESP by hand."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any
from urllib.parse import urlsplit

from tests.resp import Frames

PATIENCE = 30.0


class Client:
    """Somebody who speaks RESP, and looks at each byte that comes."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=PATIENCE)
        self._frames = Frames()
        self._ready: deque[Any] = deque()

    def send(self, *commands: str) -> None:
        """Send commands in one write. Their words are divided by spaces."""
        requests = [[word.encode() for word in command.split()] for command in commands]
        packed = [
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
            for words in requests
        ]
        self._socket.sendall(b"".join(packed))

    def hear(self) -> Any:
        """What comes next."""
        while not self._ready:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError
            self._ready.extend(frame.value for frame in self._frames.feed(data))
        return self._ready.popleft()

    def ask(self, command: str) -> Any:
        self.send(command)
        return self.hear()

    @property
    def silent(self) -> bool:
        """Nothing has come, and the connection is open."""
        self._socket.setblocking(False)
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return not self._ready
        finally:
            self._socket.settimeout(PATIENCE)
        self._ready.extend(frame.value for frame in self._frames.feed(data))
        return False

    @property
    def cut(self) -> bool:
        try:
            self.hear()
        except (EOFError, ConnectionResetError):
            return True
        return False

    def close(self) -> None:
        self._socket.close()

"""A server that sends the replies that a test sets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Answer = bytes | None | Callable[["ScriptedServer", socket.socket], object]


class ScriptedServer:
    """Replies to each request with the next of ``answers``, or with +PONG when none is left. None sends nothing, b""
    closes the connection. Handshakes get +OK and don't count. Only PINGs count as requests."""

    def __init__(self, *answers: Answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers = list(answers)
        self.after_handshake = b""
        """Bytes sent after the last reply of a handshake."""
        self.pause = 0.0
        """Seconds before each reply, also of a handshake."""
        self.trickles = False
        """Whether replies to a handshake are sent byte by byte without an end."""
        self.links: list[socket.socket] = []
        self.request_connections: list[int] = []
        """For each request the index of its connection."""
        self._ended = threading.Event()
        self.reads = threading.Event()
        self.reads.set()
        self._accept_thread = threading.Thread(target=self._accept, daemon=True)
        self._accept_thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def reply_with(self, *answers: Answer) -> None:
        """Append the replies to the next requests."""
        self._answers.extend(answers)

    def stop_accepting(self) -> None:
        """Refuse new connections."""
        with contextlib.suppress(OSError):  # not accepting already
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the accepting thread

    def trickle(self, link: socket.socket) -> None:
        """Send single bytes and read a little, for half a minute."""
        with contextlib.suppress(OSError):  # one of the two sides has closed the connection
            link.setblocking(False)
            for _ in range(600):
                if self._ended.wait(0.05):
                    break
                link.send(b"+")
                with contextlib.suppress(BlockingIOError):
                    link.recv(20_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self.reads.set()
        self.stop_accepting()
        self._accept_thread.join(20)
        self._listener.close()
        for link in self.links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self.links.append(link)
            threading.Thread(target=self._serve, args=(link, len(self.links) - 1), daemon=True).start()

    def _serve(self, link: socket.socket, number: int) -> None:
        handshake = True
        rest = b""
        try:
            while data := link.recv(65536):
                whole, end, rest = (rest + data).rpartition(b"\r\n")
                data = whole + end  # a word that is split between two reads is counted with the second
                after_handshake = self.after_handshake if b"LIB-VER" in data else b""
                if handshake and b"CLIENT\r\n" in data:
                    self._ended.wait(self.pause)
                    if self.trickles:
                        self.trickle(link)
                    link.sendall(b"+OK\r\n" * data.count(b"CLIENT\r\n") + after_handshake)
                for _ in range(data.count(b"PING\r\n")):
                    handshake = False
                    answer = self._answers.pop(0) if self._answers else b"+PONG\r\n"
                    self.request_connections.append(number)
                    self._ended.wait(self.pause)
                    if callable(answer):
                        answer(self, link)
                    elif answer == b"":
                        link.shutdown(socket.SHUT_RDWR)
                    elif answer:
                        link.sendall(answer)
                if not handshake:
                    self.reads.wait()
        except OSError:
            pass

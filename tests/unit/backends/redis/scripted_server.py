"""A server that says what a test has it say."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Answer = bytes | None | Callable[["ScriptedServer", socket.socket], object]


class ScriptedServer:
    """Each request is answered with the next of ``answers``, or with +PONG when there is none left. None is silence, b"" closes
    the connection. Handshakes are answered with +OK and don't count. Requests are cut at their first byte: those of tests
    are PINGs."""

    def __init__(self, *answers: Answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers = list(answers)
        self.greeting = b""
        """What it says behind the last answer of a handshake."""
        self.pause = 0.0
        """Seconds before each answer, also of a handshake."""
        self.drips = False
        """Each answer to a handshake comes byte by byte, and never ends."""
        self.links: list[socket.socket] = []
        self.asked: list[int] = []
        """On which connection each request came, counted from 0."""
        self._ended = threading.Event()
        self.reads = threading.Event()
        self.reads.set()
        self._door = threading.Thread(target=self._accept, daemon=True)
        self._door.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def say(self, *answers: Answer) -> None:
        """What the next requests are answered with."""
        self._answers.extend(answers)

    def hide(self) -> None:
        """Nobody can connect any more."""
        with contextlib.suppress(OSError):  # hidden already
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes who accepts

    def drip(self, link: socket.socket) -> None:
        """Say a byte now and then, and read a little, for half a minute."""
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
        self.hide()
        self._door.join(20)
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
                data = whole + end  # a word that a read has cut is counted with what comes next
                greeting = self.greeting if b"LIB-VER" in data else b""
                if handshake and b"CLIENT\r\n" in data:
                    self._ended.wait(self.pause)
                    if self.drips:
                        self.drip(link)
                    link.sendall(b"+OK\r\n" * data.count(b"CLIENT\r\n") + greeting)
                for _ in range(data.count(b"PING\r\n")):
                    handshake = False
                    self.asked.append(number)
                    self._ended.wait(self.pause)
                    answer = self._answers.pop(0) if self._answers else b"+PONG\r\n"
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

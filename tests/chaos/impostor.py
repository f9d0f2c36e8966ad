"""A server that isn't what it should be: it stands before a real one, and says something else when it is told to.

    with Impostor(server.port) as impostor:
        impostor.say(b"+OK\\r\\n", of="lock/acquire")       # instead of the next reply; the step is carried out
        impostor.say(then_close(b"*5\\r\\n:1\\r\\n"), times=-1)  # from then on, whatever script is called
        impostor.well()                                    # and now it is as good as the real one

What it says may be bytes or a function, which gets the client's end and the true reply and does as it likes; what it
waits for is the impostor's ``over``. A connection is served by one thread, so what holds up a reply holds up all behind it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.passage import is_script, name_of
from tests.resp import Frames, Push

Say = Callable[["End", bytes], None]


class Plan(NamedTuple):
    say: Say
    of: str | None
    carried_out: bool


class Impostor:
    """Tests call it from any thread."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._plans: list[tuple[Plan, int]] = []
        self._mutex = threading.Lock()
        self._ends: set[End] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.protocols: tuple[int, ...] = (2, 3)
        """What HELLO may ask for; without any there is no HELLO."""
        self.greet: Callable[[End], None] | None = None
        """What becomes of a new connection, instead of being served."""
        self.calls: list[str] = []
        """What it was asked."""
        self.connected = 0
        """How many connections there were."""
        self.over = threading.Event()
        self._door = threading.Thread(target=self._accept, daemon=True)
        self._door.start()

    def say(self, what: bytes | Say, *, of: str | None = None, times: int = 1, carried_out: bool = True) -> None:
        """Instead of the replies to the next requests of a name (None: any script call). -1 times: until it is well."""
        plan = Plan(_saying(what) if isinstance(what, bytes) else what, of, carried_out)
        with self._mutex:
            self._plans.append((plan, times))

    def well(self) -> None:
        """From now on it does what a server does. Whoever it keeps waiting is cut off."""
        with self._mutex:
            self._plans.clear()
            self.greet = None
            self.over.set()
            self.over = threading.Event()

    def cut(self) -> None:
        """Close every connection."""
        for end in list(self._ends):
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._door.join(20)
        self._listener.close()
        self.over.set()
        self.cut()
        for thread in self._threads:  # what one of them has carried out later would be in the next test's way
            thread.join(20)

    # Its threads

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connected += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        end = End(client, self.over)
        self._ends.add(end)
        try:
            with contextlib.suppress(OSError):
                if self.greet is not None:
                    self.greet(end)
                    return
                with socket.create_connection(self._server) as server:
                    self._converse(end, server)
        finally:
            self._ends.discard(end)
            end.close()

    def _converse(self, end: End, server: socket.socket) -> None:
        replies = read(server)
        listening = False
        for raw, request in read(end.sock):
            name = name_of(request)
            self.calls.append(name)
            if end.closed:  # by what was said to an earlier request: what came with it isn't carried out
                return
            plan = self._plan(name)
            if name == "HELLO" and (refusal := self._hello(request)):
                end.send(refusal)
                continue
            if plan is not None and not plan.carried_out:
                plan.say(end, b"")
                continue
            server.sendall(raw)
            if listening:
                continue
            reply = next((reply for reply, value in replies if not isinstance(value, Push)), None)
            if reply is None:
                return
            if plan is None:
                end.send(reply)
            else:
                plan.say(end, reply)
            if name == "SUBSCRIBE":
                listening = True
                threading.Thread(target=relay, args=(server, end), daemon=True).start()

    def _plan(self, name: str) -> Plan | None:
        with self._mutex:
            for index, (plan, times) in enumerate(self._plans):
                if is_script(name) if plan.of is None else plan.of == name:
                    self._plans[index : index + 1] = [] if times == 1 else [(plan, times - 1)]
                    return plan
        return None

    def _hello(self, request: list[Any]) -> bytes:
        if not self.protocols:
            return b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"
        if len(request) > 1 and int(request[1]) not in self.protocols:
            return b"-NOPROTO unsupported protocol version\r\n"
        return b""


class End:
    """The client's end of a connection."""

    def __init__(self, sock: socket.socket, over: threading.Event) -> None:
        self.sock = sock
        self.over = over
        self.closed = False

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def read(sock: socket.socket) -> Iterator[tuple[bytes, Any]]:
    frames = Frames()
    with contextlib.suppress(OSError):
        while data := sock.recv(65536):
            yield from frames.feed(data)


def relay(server: socket.socket, end: End) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(65536):
            end.send(data)


# What it may say


def _saying(data: bytes) -> Say:
    return lambda end, reply: end.send(data)


def then_close(data: bytes) -> Say:
    """Only so much, and it hangs up."""

    def say(end: End, reply: bytes) -> None:
        end.send(data)
        end.close()

    return say


def then_silence(data: bytes) -> Say:
    """Only so much, and not another word until it is well."""

    def say(end: End, reply: bytes) -> None:
        end.send(data)
        end.over.wait(60)
        end.close()

    return say


def endless(data: bytes) -> Say:
    """The same again and again, until the other side has had enough."""

    def say(end: End, reply: bytes) -> None:
        while not end.over.is_set():
            end.send(data)
        end.close()

    return say


def dribble(pause: float, data: bytes = b"") -> Say:
    """This, or the true reply, byte by byte."""

    def say(end: End, reply: bytes) -> None:
        for byte in data or reply:
            end.send(bytes([byte]))
            if end.over.wait(pause):
                break

    return say


def around(before: bytes = b"", after: bytes = b"") -> Say:
    """The true reply, and more in the same write."""
    return lambda end, reply: end.send(before + reply + after)

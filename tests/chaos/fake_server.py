"""A proxy in front of a real server that replaces replies.

    with FakeServer(server.port) as fake_server:
        fake_server.reply_with(b"+OK\\r\\n", of="lock/acquire")  # instead of the next reply; the command is carried out
        fake_server.reply_with(then_close(b"*5\\r\\n:1\\r\\n"), times=-1)  # instead of each reply to a script call
        fake_server.recover()  # from now on it passes everything on

A reply is bytes, or a function of the client's connection and of the true reply that sends what it likes; a function
that blocks waits for the connection's ``over``. A connection is served by one thread, so a reply that is held back
delays all that follow it.
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

Reply = Callable[["Client", bytes], None]


class Plan(NamedTuple):
    reply: Reply
    of: str | None
    carried_out: bool


class FakeServer:
    """Tests call it from any thread."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._plans: list[tuple[Plan, int]] = []
        self._mutex = threading.Lock()
        self._clients: set[Client] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.protocols: tuple[int, ...] = (2, 3)
        """The versions of RESP that HELLO accepts; HELLO is unknown if there are none."""
        self.on_connect: Callable[[Client], None] | None = None
        """Called with each new connection, which isn't served then."""
        self.calls: list[str] = []
        """The names of the commands that came."""
        self.connected = 0
        """The number of connections so far."""
        self.over = threading.Event()
        self._door = threading.Thread(target=self._accept, daemon=True)
        self._door.start()

    def reply_with(
        self, what: bytes | Reply, *, of: str | None = None, times: int = 1, carried_out: bool = True
    ) -> None:
        """Send this instead of the replies to the next commands of a name (None: any script call). -1 times: until `recover`."""
        plan = Plan(_send(what) if isinstance(what, bytes) else what, of, carried_out)
        with self._mutex:
            self._plans.append((plan, times))

    def recover(self) -> None:
        """Pass everything on again, and close the connections that wait for a reply."""
        with self._mutex:
            self._plans.clear()
            self.on_connect = None
            self.over.set()
            self.over = threading.Event()

    def disconnect(self) -> None:
        """Close every connection."""
        for client in list(self._clients):
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._door.join(20)
        self._listener.close()
        self.over.set()
        self.disconnect()
        for thread in self._threads:  # none sends a command during the next test
            thread.join(20)

    # Threads

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

    def _serve(self, sock: socket.socket) -> None:
        client = Client(sock, self.over)
        self._clients.add(client)
        try:
            with contextlib.suppress(OSError):
                if self.on_connect is not None:
                    self.on_connect(client)
                    return
                with socket.create_connection(self._server) as server:
                    self._converse(client, server)
        finally:
            self._clients.discard(client)
            client.close()

    def _converse(self, client: Client, server: socket.socket) -> None:
        replies = read(server)
        listening = False
        for raw, request in read(client.sock):
            name = name_of(request)
            self.calls.append(name)
            if client.closed:  # by the reply to an earlier command of the same write
                return
            plan = self._plan(name)
            if name == "HELLO" and (refusal := self._hello(request)):
                client.send(refusal)
                continue
            if plan is not None and not plan.carried_out:
                plan.reply(client, b"")
                continue
            server.sendall(raw)
            if listening:
                continue
            reply = next((reply for reply, value in replies if not isinstance(value, Push)), None)
            if reply is None:
                return
            if plan is None:
                client.send(reply)
            else:
                plan.reply(client, reply)
            if name == "SUBSCRIBE":
                listening = True
                threading.Thread(target=relay, args=(server, client), daemon=True).start()

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


class Client:
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


def relay(server: socket.socket, client: Client) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(65536):
            client.send(data)


# Replies


def _send(data: bytes) -> Reply:
    return lambda client, reply: client.send(data)


def then_close(data: bytes) -> Reply:
    """This, and then the connection is closed."""

    def send(client: Client, reply: bytes) -> None:
        client.send(data)
        client.close()

    return send


def then_silence(data: bytes) -> Reply:
    """This, and nothing more until `recover`."""

    def send(client: Client, reply: bytes) -> None:
        client.send(data)
        client.over.wait(60)
        client.close()

    return send


def endless(data: bytes) -> Reply:
    """This repeatedly, until the client closes the connection."""

    def send(client: Client, reply: bytes) -> None:
        while not client.over.is_set():
            client.send(data)
        client.close()

    return send


def dribble(pause: float, data: bytes = b"") -> Reply:
    """This or the true reply, byte by byte."""

    def send(client: Client, reply: bytes) -> None:
        for byte in data or reply:
            client.send(bytes([byte]))
            if client.over.wait(pause):
                break

    return send


def around(before: bytes = b"", after: bytes = b"") -> Reply:
    """The true reply with more bytes in the same write."""
    return lambda client, reply: client.send(before + reply + after)

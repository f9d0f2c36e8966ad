"""The baseline: bytes on a socket, without the work of a library."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import threading

from .base import LEASE, Adapter, NotAcquired, address

RELEASE = b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
RELEASE_SHA = hashlib.sha1(RELEASE, usedforsecurity=False).hexdigest().encode()


def pack(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def connect(url: str) -> socket.socket:
    connection = socket.create_connection(address(url))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, request: bytes, expected: bytes) -> None:
    """Send a request and read its reply. Raise if it isn't the expected one."""
    connection.sendall(request)
    reply = connection.recv(4096)
    while len(reply) < len(expected) and not reply.startswith(b"-"):
        more = connection.recv(4096)
        if not more:
            break
        reply += more
    if reply != expected:
        raise NotAcquired(repr(reply))


def acquire_request(name: bytes, token: bytes) -> bytes:
    request = b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$16\r\n%b\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n%d\r\n"
    return request % (len(name), name, token, LEASE * 1000)


def release_request(name: bytes, token: bytes) -> bytes:
    request = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n$%d\r\n%b\r\n$16\r\n%b\r\n"
    return request % (RELEASE_SHA, len(name), name, token)


class RawSocket(Adapter):
    """SET NX PX and compare-and-delete, packed by hand, with a token per hold. Without waiting: for uncontended
    rows."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection = connect(url)
        exchange(self.connection, pack(b"SCRIPT", b"LOAD", RELEASE), b"$40\r\n%b\r\n" % RELEASE_SHA)
        prefix = os.urandom(4).hex().encode()
        self.tokens = (prefix + b"%08x" % number for number in itertools.count())

    def acquire(self, key: str) -> tuple[bytes, bytes]:
        name = key.encode()
        token = next(self.tokens)
        self.connection.sendall(acquire_request(name, token))
        if self.connection.recv(64) != b"+OK\r\n":
            raise NotAcquired
        return name, token

    def release(self, held: tuple[bytes, bytes]) -> None:
        self.connection.sendall(release_request(*held))
        if self.connection.recv(64) != b":1\r\n":
            raise NotAcquired


class RawRound(Adapter):
    """The same requests to several servers: each is sent to all of them before any reply is read."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._all = [RawSocket(each) for each in url.split()]

    def acquire(self, key: str) -> tuple[bytes, bytes]:
        name = key.encode()
        token = next(self._all[0].tokens)
        self._exchange(acquire_request(name, token), b"+OK\r\n")
        return name, token

    def release(self, held: tuple[bytes, bytes]) -> None:
        self._exchange(release_request(*held), b":1\r\n")

    def _exchange(self, request: bytes, expected: bytes) -> None:
        for one in self._all:
            one.connection.sendall(request)
        for one in self._all:
            if one.connection.recv(64) != expected:
                raise NotAcquired


class Baton(Adapter):
    """BLPOP takes the baton, LPUSH passes it on: the minimum number of commands for a hand-over. It has no owner and no
    lease: if its holder dies, nothing frees it. One connection per thread.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._local = threading.local()
        self._all: list[socket.socket] = []  # kept open: closing a connection counts as a request

    def prepare(self, key: str) -> None:
        with connect(self.url) as connection:
            exchange(connection, pack(b"LPUSH", key.encode(), b"1"), b":1\r\n")

    def acquire(self, key: str) -> bytes:
        name = key.encode()
        try:
            connection = self._local.connection
        except AttributeError:
            connection = self._local.connection = connect(self.url)
            self._all.append(connection)
        exchange(connection, pack(b"BLPOP", name, b"0"), b"*2\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(name), name))
        return name

    def release(self, held: bytes) -> None:
        exchange(self._local.connection, pack(b"LPUSH", held, b"1"), b":1\r\n")

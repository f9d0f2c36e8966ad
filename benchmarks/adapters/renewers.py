"""Baselines for renewal: pipelined on a raw socket, and one by one with redis-py."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from typing import Any

from .raw import RawSocket, connect, pack
from .redispy import RedisPy

RENEW = b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
RENEW_SHA = hashlib.sha1(RENEW, usedforsecurity=False).hexdigest().encode()
TICK = 0.1


def every(seconds: float, step: Any) -> None:
    """Call `step` periodically in a new thread, without end."""

    def go() -> None:
        while True:
            time.sleep(seconds)
            step()

    threading.Thread(target=go, daemon=True).start()


class RawRenewed(RawSocket):
    """Sends all renewals that are due in one write, every 100 ms."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._due: list[tuple[float, bytes, bytes]] = []
        self._channel: socket.socket | None = None

    def hold(self, key: str, lease: float) -> tuple[bytes, bytes]:
        held = self.acquire(key)
        milliseconds = b"%d" % (lease * 1000)
        request = pack(b"EVALSHA", RENEW_SHA, b"1", held[0], held[1], milliseconds)
        self._due.append((time.monotonic() + lease / 3, request, milliseconds))
        if self._channel is None:
            self._channel = connect(self.url)
            self._channel.sendall(pack(b"EVAL", RENEW, b"1", b"none", b"none", b"1"))
            self._channel.recv(64)
            every(TICK, lambda: self._renew(lease / 3))
        return held

    def owns(self, held: tuple[bytes, bytes]) -> bool:
        name, token = held
        self.connection.sendall(pack(b"GET", name))
        return token in self.connection.recv(128)

    def _renew(self, interval: float) -> None:
        """Renew all locks that are due. They are due in the order of their acquisition."""
        assert self._channel is not None  # noqa: S101 - for the type checker
        now = time.monotonic()
        number = next((index for index, due in enumerate(self._due) if due[0] > now), len(self._due))
        ready, self._due = self._due[:number], self._due[number:]
        if not ready:
            return
        self._channel.sendall(b"".join(request for _, request, _ in ready))
        received = 0
        while received < 4 * number:
            received += len(self._channel.recv(65536))
        self._due += [(now + interval, *rest) for _, *rest in ready]  # type: ignore[misc]


class RedisPyOneByOne(RedisPy):
    """One thread renews all locks with redis-py, one after the other."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._held: list[Any] = []

    def hold(self, key: str, lease: float) -> Any:
        lock = self.client.lock(key, timeout=lease, thread_local=False)
        lock.acquire()
        self._held.append(lock)
        if len(self._held) == 1:
            every(lease / 3, self._renew)
        return lock

    def owns(self, held: Any) -> bool:
        return bool(held.owned())

    def _renew(self) -> None:
        for lock in list(self._held):
            lock.reacquire()

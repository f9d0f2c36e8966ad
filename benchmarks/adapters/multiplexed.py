"""The baseline for tasks: one connection for all of them, replies matched in order."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque

from .base import LEASE, NotAcquired, TaskAdapter, address
from .raw import RELEASE, RELEASE_SHA, pack


class Multiplexed(TaskAdapter):
    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        host, port = address(self.url)
        self._transport, self._protocol = await loop.create_connection(Replies, host, port)
        await self._send(pack(b"EVAL", RELEASE, b"1", b"none", b"none"))  # loads the script
        prefix = os.urandom(4).hex().encode()
        self._tokens = (prefix + b"%08x" % number for number in itertools.count())

    async def acquire(self, key: str) -> tuple[bytes, bytes]:
        name = key.encode()
        token = next(self._tokens)
        request = b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$16\r\n%b\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n%d\r\n"
        if await self._send(request % (len(name), name, token, LEASE * 1000)) != b"+OK":
            raise NotAcquired
        return name, token

    async def release(self, held: tuple[bytes, bytes]) -> None:
        name, token = held
        request = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n$%d\r\n%b\r\n$16\r\n%b\r\n"
        if await self._send(request % (RELEASE_SHA, len(name), name, token)) != b":1":
            raise NotAcquired

    async def close(self) -> None:
        self._transport.close()

    def _send(self, request: bytes) -> asyncio.Future[bytes]:
        self._transport.write(request)
        return self._protocol.expect()


class Replies(asyncio.BufferedProtocol):
    """Sets one-line replies as results of futures, in the order of the requests."""

    def __init__(self) -> None:
        self._buffer = bytearray(16384)
        self._rest = b""
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._loop = asyncio.get_running_loop()

    def expect(self) -> asyncio.Future[bytes]:
        future = self._loop.create_future()
        self._waiting.append(future)
        return future

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        *lines, self._rest = (self._rest + self._buffer[:nbytes]).split(b"\r\n")
        for line in lines:
            self._waiting.popleft().set_result(bytes(line))

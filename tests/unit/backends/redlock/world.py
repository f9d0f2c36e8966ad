"""Servers of a Redlock in memory, and clients of it, on an event loop with virtual time: each request takes as long as the
test says, and may be lost, or its reply."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from django_redis_locks.backends.base import Backend
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.backends.redlock.quorum import Quorum
from django_redis_locks.core import clock
from django_redis_locks.core.commands import Command
from django_redis_locks.core.errors import LockBackendError
from django_redis_locks.core.hold import validity
from django_redis_locks.core.keys import KeyLayout
from django_redis_locks.core.steps.locks import (
    AcquireLock,
    ForceReleaseLock,
    InspectLock,
    LockWaiter,
    ReleaseLock,
    RenewLocks,
)

TIMEOUT = 0.5
START = 1_700_000_000.0
_worlds = count(1).__next__


class VirtualClock:
    """The clock of the world. ``ahead`` is the offset of the server that executes a command."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.ahead = 0.0

    def now(self) -> float:
        return self.time + self.ahead

    def wall(self) -> float:
        return START + self.time + self.ahead

    def wait(self, lock: Any, seconds: float) -> None:
        """Threads of other tests sleep on the machine's clock."""
        clock.SYSTEM.wait(lock, seconds)


class _NoWaiting(selectors.SelectSelector):
    """Advances the clock instead of waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "every task waits for something that never comes"
        self._clock.time += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_NoWaiting(clock))
        self._virtual_clock = clock

    def time(self) -> float:
        return self._virtual_clock.time


class OnLoop:
    """Runs jobs on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, job: Callable[[], object]) -> None:
        self._loop.call_soon(job)

    def start_later(self, seconds: float, job: Callable[[], object]) -> None:
        self._loop.call_later(seconds, job)

    def wait(self, done: Any, seconds: float) -> None:
        raise AssertionError("only tasks wait here")

    def after_fork_in_child(self) -> None: ...


class Server:
    """A server in memory.

    Attributes:
        down: it refuses connections.
        ahead: seconds by which its clock is ahead.
        request_takes, reply_takes: return the seconds of the next request or reply on its way; None if it is lost.
        executed: the names of the commands that it has executed.
    """

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.store = MemoryBackend(name)
        self.store.clear()
        self.clock = clock
        self.down = False
        self.ahead = 0.0
        self.request_takes: Callable[[], float | None] = lambda: 0.001
        self.reply_takes: Callable[[], float | None] = lambda: 0.001
        self.executed: list[str] = []

    def execute(self, command: Command[Any]) -> Any:
        self.executed.append(command.name)
        before, self.clock.ahead = self.clock.ahead, self.ahead
        try:
            return self.store.call(command)
        finally:
            self.clock.ahead = before

    def restart_empty(self) -> None:
        self.store.clear()
        self.down = False

    def holds(self, lock: str) -> bool:
        return bool(self.execute(Command("lock/inspect", (lock,), InspectLock("lock"), lambda reply: reply)))


class Connection(Backend):
    """What one client has of one server."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.identity = f"server{number}"

    def __repr__(self) -> str:
        return self.identity

    def call(self, command: Command[Any]) -> Any:
        if self.server.down:
            raise self._failure("refused", unknown=False)
        if self.server.request_takes() is None:
            raise self._failure("no answer", unknown=True)
        return self.server.execute(command)

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        try:
            first = self.call(commands[0])
        except LockBackendError as failure:
            return [failure] * len(commands)
        return [first, *map(self.call, commands[1:])]

    async def acall(self, command: Command[Any]) -> Any:
        server, loop = self.server, asyncio.get_running_loop()
        if server.down:
            await asyncio.sleep(0.0001)
            raise self._failure("refused", unknown=False)
        replied: asyncio.Future[Any] = loop.create_future()

        def arrive() -> None:
            if server.down:
                return
            reply, takes = server.execute(command), server.reply_takes()
            if takes is not None:
                loop.call_later(takes, answer, reply)

        def answer(reply: Any) -> None:
            if not replied.done():
                replied.set_result(reply)

        takes = server.request_takes()
        if takes is not None:
            loop.call_later(takes, arrive)
        try:
            return await asyncio.wait_for(replied, TIMEOUT)
        except TimeoutError:
            raise self._failure("no answer", unknown=True) from None

    def _failure(self, why: str, *, unknown: bool) -> LockBackendError:
        return LockBackendError(
            f"{why} from {self.identity}", outcome_unknown=unknown, transient=True, unreachable=True
        )


class World:
    """Servers, and clients with a quorum each."""

    def __init__(self, servers: int, clock: VirtualClock, loop: asyncio.AbstractEventLoop) -> None:
        name = _worlds()
        self.clock = clock
        self.loop = loop
        self.servers = [Server(f"redlock{name}.{number}", clock) for number in range(servers)]
        self._tokens = count(1).__next__

    def client(self, *, fenced: bool = True) -> Client:
        return Client(self, fenced)

    def holders(self, key: str = "a") -> int:
        """Return the number of servers that hold a lock."""
        lock = KeyLayout("lock").keys_of(key).lock
        return sum(server.holds(lock) for server in self.servers)


class Client:
    """One process."""

    def __init__(self, world: World, fenced: bool) -> None:
        self.world = world
        connections = [Connection(server, number) for number, server in enumerate(world.servers)]
        self.quorum = Quorum(connections, "the servers", OnLoop(world.loop), TIMEOUT, fenced=fenced)

    def token(self) -> str:
        return f"token{self.world._tokens()}"

    async def acquire(
        self, token: str, lease: float = 10.0, key: str = "a", *, handed: str = "", holder: str = ""
    ) -> tuple[int, float] | None:
        """Return the fence and the deadline, or None if the lock is busy."""
        keys = KeyLayout("lock").keys_of(key)
        args = AcquireLock(token, round(1000 * lease), holder)
        used: tuple[str, ...] = keys.lock, keys.fence, keys.index_key
        if handed:
            args = args._replace(waiter=LockWaiter(handed, "", 0, 1000))
            used = keys.lock, keys.fence, keys.waiters, keys.index_key
        deadline = self.world.clock.time + validity(1000 * lease)
        reply = await self._send("lock/acquire", used, args)
        if isinstance(reply, int):
            return reply, deadline
        return (reply[1], deadline) if reply[0] == 1 else None

    async def release(self, token: str, key: str = "a") -> int:
        keys = KeyLayout("lock").keys_of(key)
        used = keys.lock, keys.waiters, keys.fence, keys.index_key
        freed: int = await self._send("lock/release", used, ReleaseLock(token))
        return freed

    async def renew(self, token: str, lease: float = 10.0, key: str = "a") -> tuple[bool, float]:
        keys = KeyLayout("lock").keys_of(key)
        deadline = self.world.clock.time + validity(1000 * lease)
        args = RenewLocks(round(1000 * lease), (token,))
        (renewed,) = await self._send("lock/renew", (keys.lock, keys.index_key), args)
        return bool(renewed), deadline

    async def holder(self, key: str = "a") -> Any:
        return await self._send("lock/inspect", (KeyLayout("lock").keys_of(key).lock,), InspectLock("lock"))

    async def force_release(self, fence: int, key: str = "a") -> int:
        keys = KeyLayout("lock").keys_of(key)
        used = keys.lock, keys.waiters, keys.fence, keys.index_key
        freed: int = await self._send("lock/force_release", used, ForceReleaseLock(fence, "all", 1))
        return freed

    async def _send(self, name: str, keys: tuple[str, ...], args: Any) -> Any:
        return await self.quorum.acall(Command(name, keys, args, lambda reply: reply))


@contextmanager
def virtual_time() -> Iterator[tuple[VirtualClock, VirtualLoop]]:
    """Install a virtual clock, with a loop on it."""
    virtual = VirtualClock()
    before = clock.install(virtual)
    loop = VirtualLoop(virtual)
    try:
        yield virtual, loop
    finally:
        loop.close()
        clock.install(before)


def play(story: Callable[[World], Coroutine[Any, Any, None]], servers: int = 5) -> None:
    """Run a story in a world of its own."""
    with virtual_time() as (virtual, loop):
        try:
            loop.run_until_complete(story(World(servers, virtual, loop)))
        finally:
            loop.run_until_complete(asyncio.sleep(5))  # what is under way ends

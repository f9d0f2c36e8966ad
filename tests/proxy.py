"""A proxy between clients and their Redis server that injects faults: it drops, delays, repeats and cuts.

    with Proxy(server.port) as proxy:
        proxy.plan("drop", "reply", of="lock/acquire")  # the next attempt is executed, its reply is lost
        proxy.plan("delay", "request", times=2)         # the next two script calls are delayed,
        ...
        proxy.deliver()                                 # reach the server now, and are executed
        assert proxy.fates("lock/acquire") == ["drop reply", "delay request", "pass"]

The name of a script call is the script's name; of any other command its own, in capitals; of a Pub/Sub message
"message". Without ``of`` a fault applies to any script call. Each request, reply or message gets one fault: the first
one planned for it. A script that the server doesn't know yet is called twice, by hash and by source: call it once
before.

A connection is a stream: a delay also delays everything behind it, and after a drop nothing more passes in that
direction. Only a message can be dropped alone, as if it had never been published.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.proxy_connection import PASS, DelayedItem, Fault, ProxyConnection
from tests.resp import Stream

__all__ = ["Call", "Fault", "Proxy", "ProxyConnection"]

Policy = Callable[[str, list[Any], ProxyConnection], Fault | None]

PATIENCE = 30.0


class Call(NamedTuple):
    """The name of a request or message, its fault, and the number of its connection, from 1."""

    name: str
    fate: str
    connection: int


class Proxy:
    """Its methods may be called from any thread; the traffic is handled in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._plans: list[Fault] = []
        self._held: list[DelayedItem] = []
        self._held_something = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[ProxyConnection, asyncio.Task[Any] | None] = {}
        self._connection_count = 0
        self._down = False
        self.calls: list[Call] = []
        """All requests and messages, in order."""
        self.policy: Policy | None = None
        """Chooses the fault if none was planned. It is called in the proxy's thread."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(started),), daemon=True)
        self._thread.start()
        self._loop, self._stop = started.result(PATIENCE)

    # Called by tests

    def plan(
        self,
        action: str,
        direction: str = "request",
        *,
        of: str | None = None,
        times: int = 1,
        behind: str | None = None,
        data: bytes = b"",
    ) -> None:
        """Plan a fault for the next ``times`` requests or messages of a name.

        Args:
            action: "drop" loses it. "delay" holds it back until ``deliver()``. "duplicate" sends it twice; the second
                reply to a request is discarded. "late copy" forwards a request, and ``deliver()`` sends it again on
                another connection. "cut" closes the client's connection instead. "freeze" keeps the connection open,
                but forwards nothing more in either direction. "replace" replies with ``data`` instead. "pass" forwards
                it.
            direction: "request": on the way to the server, which doesn't get it; "reply": on the way back.
            of: the name of a command or script, or a message's kind; None is any script call.
            behind: sends a delayed request or a late copy right after the next request of that name: it is executed
                before the reply to that one is forwarded.
            data: what the client gets instead of the reply, also before a "cut" or a "freeze"; "{reply}" in it stands
                for the real reply.
        """
        self._plans.extend([Fault(action, direction, of, behind, data)] * times)

    def insist(self, fault: Fault) -> None:
        """Apply this fault to everything that it is meant for, until ``reset``."""
        self.policy = lambda name, value, connection: fault if fault.meant_for(name) else None

    def fates(self, of: str | None = None) -> list[str]:
        """The faults of the requests of a name, or of all script calls."""
        wanted = Fault(of=of)
        return [call.fate for call in list(self.calls) if wanted.meant_for(call.name)]

    @property
    def holds(self) -> int:
        """How many items are held back now."""
        return len(self._held)

    @property
    def unanswered(self) -> int:
        """How many requests the server has received and not answered."""
        return sum(len(connection.pending_requests) for connection in list(self._connections))

    def deliver(self) -> None:
        """Forward everything that is held back, in order, and return when it was executed.

        If nothing is held back yet, it waits: a test may see a request's effect before the proxy gets the reply.

        Raises:
            TimeoutError: nothing was held back in time.
        """
        self._run(self._deliver())

    def push(self, data: bytes) -> None:
        """Send these bytes to every client, without a request."""
        self._run(self._push(data))

    def freeze(self, of: str | None = None) -> None:
        """Freeze the present connections, or those on which this command was sent. New connections work."""
        self._run(self._freeze(of))

    def redirect_to(self, port: int) -> None:
        """Connect new clients to the server on this port; present connections stay."""
        self._server = ("127.0.0.1", port)

    def down(self) -> None:
        """Close every connection, and refuse new ones until ``up``."""
        self._down = True
        self._run(self._disconnect())

    def up(self) -> None:
        self._down = False

    def reset(self) -> None:
        """Forget plans, policy and held items, and close every connection on which data was lost."""
        self.policy = None
        self._plans.clear()
        self._run(self._disconnect(lambda connection: connection.damaged))
        self.calls.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    # Called by its connections

    def fault_for(self, name: str, value: list[Any], connection: ProxyConnection) -> Fault:
        """Choose the fault of a request or message, and record it."""
        fault = next((fault for fault in list(self._plans) if fault.meant_for(name)), None)
        if fault is not None:
            self._plans.remove(fault)
        elif self.policy is not None:
            fault = self.policy(name, value, connection)
        fault = fault or PASS
        self.calls.append(Call(name, str(fault), connection.number))
        return fault

    def hold_back(self, fault: Fault) -> DelayedItem:
        held = DelayedItem(fault.behind)
        self._held.append(held)
        self._held_something.set()
        return held

    def take_held_behind(self, name: str) -> list[DelayedItem]:
        """Take out the held items that follow a request of this name."""
        found = [held for held in self._held if held.behind == name]
        self._held = [held for held in self._held if held.behind != name]
        return found

    def hold_late_copy(self, fault: Fault, requests: list[bytes]) -> None:
        """Hold back a copy of the last of these requests. The others are the login of its connection."""
        self._start_task(self._send_late_copy(self.hold_back(fault), requests))

    # Its thread

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _main(self, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        self._listener.setblocking(False)
        loop.add_reader(self._listener, self._accept)
        started.set_result((loop, end))
        await end.wait()
        self._down = True
        loop.remove_reader(self._listener)
        self._listener.close()
        await self._disconnect()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # the client has closed the connection already
        if self._down:
            client.close()
        else:
            task = self._start_task(self._serve(client))
            task.add_done_callback(
                lambda task: client.close() if task.cancelled() else None
            )  # the task may not have started

    async def _serve(self, sock: socket.socket) -> None:
        client = Stream(*await asyncio.open_connection(sock=sock))
        try:
            server = Stream(*await asyncio.open_connection(*self._server))
            self._connection_count += 1
            connection = ProxyConnection(self, self._connection_count, client, server)
            self._connections[connection] = asyncio.current_task()
            try:
                await connection.run()
            finally:
                del self._connections[connection]
                server.close()
        except OSError:
            pass  # the server is down
        finally:
            client.close()

    async def _deliver(self) -> None:
        if not self._held:
            self._held_something.clear()
            await asyncio.wait_for(self._held_something.wait(), PATIENCE / 2)
        held, self._held = self._held, []
        for each in held:
            await each.execute()

    async def _push(self, data: bytes) -> None:
        for connection in self._connections:
            connection.push(data)

    async def _freeze(self, of: str | None) -> None:
        for connection in list(self._connections):
            if of is None or of in connection.sent_names:
                connection.freeze()

    async def _disconnect(self, chosen: Callable[[ProxyConnection], bool] = lambda connection: True) -> None:
        kept = {task for connection, task in self._connections.items() if not chosen(connection)}
        tasks = [task for task in self._tasks if task not in kept]
        for connection in filter(chosen, self._connections):
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # connections close in the next iteration of the loop
        self._held.clear()

    async def _send_late_copy(self, held: DelayedItem, requests: list[bytes]) -> None:
        await held.release.wait()
        try:
            connection = Stream(*await asyncio.open_connection(*self._server))
            for request in requests:
                connection.write(request)
            for _ in requests:
                await connection.next()
            connection.close()
        finally:
            held.done.set()

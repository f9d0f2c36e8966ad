"""A proxy between clients and their Redis server that loses, holds back, repeats and cuts what passes.

    with Proxy(server.port) as proxy:
        proxy.plan("drop", "reply", of="lock/acquire")  # the next attempt is carried out, and nobody is told
        proxy.plan("delay", "request", times=2)         # of the script calls after it two are held back,
        ...
        proxy.deliver()                                 # reach the server now, and are carried out
        assert proxy.fates("lock/acquire") == ["drop reply", "delay request", "pass"]

A script call goes by the script's name, any other command by its own in capitals, a message by its kind: "message".
Without ``of`` a fault is meant for script calls, whichever. Each passage suffers one fault, the first that was planned
for it. A script that the server doesn't know yet is called twice, by its hash and by its source: call it once before.

A connection is a stream. What is held back holds back all that comes behind it; behind what is lost, nothing more comes
through in that direction. Only a message may be missing among others, as one is that was never published.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.passage import PASS, Fault, Held, Link
from tests.resp import Stream

__all__ = ["Call", "Fault", "Link", "Proxy"]

Policy = Callable[[str, list[Any], Link], Fault | None]

PATIENCE = 30.0


class Call(NamedTuple):
    """What came to the proxy, what became of it, and on which of the connections, counted from 1."""

    name: str
    fate: str
    link: int


class Proxy:
    """Tests call it from any thread; what passes is handled in one thread of its own."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._plans: list[Fault] = []
        self._held: list[Held] = []
        self._came = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: dict[Link, asyncio.Task[Any] | None] = {}
        self._connected = 0
        self._down = False
        self.calls: list[Call] = []
        """What came to the proxy, in order."""
        self.policy: Policy | None = None
        """Chooses the fault of what nothing was planned for. It runs in the proxy's thread."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(started),), daemon=True)
        self._thread.start()
        self._loop, self._end = started.result(PATIENCE)

    # What a test may want

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
        """What happens to the next ``times`` passages of a name.

        Args:
            action: "drop" loses it. "delay" holds it back until ``deliver()``. "duplicate" lets it through twice; the
                second answer to a request is swallowed. "late copy" lets a request through, and ``deliver()`` sends it
                again, on a connection of its own. "cut" closes the client's connection instead. "freeze" leaves it open
                for ever, and nothing goes through any more, either way. "replace" answers with ``data`` instead.
                "pass" lets it through.
            direction: "request": on its way to the server, which doesn't get it; "reply": on the way back.
            of: the name of a command or script, or a message's kind; None is any script call.
            behind: what is delayed, and a late copy, goes by itself right behind the next request of that name: it is
                carried out before that one's answer is passed on.
            data: what the client gets in the place of the reply, also before a "cut" or a "freeze"; "{reply}" in it stands
                for the true one.
        """
        self._plans.extend([Fault(action, direction, of, behind, data)] * times)

    def insist(self, fault: Fault) -> None:
        """This happens to everything that it is meant for, until ``reset``."""
        self.policy = lambda name, value, link: fault if fault.meant_for(name) else None

    def fates(self, of: str | None = None) -> list[str]:
        """What became of the calls of a name, or of all script calls."""
        wanted = Fault(of=of)
        return [call.fate for call in list(self.calls) if wanted.meant_for(call.name)]

    @property
    def holds(self) -> int:
        """So much is held back now."""
        return len(self._held)

    @property
    def unanswered(self) -> int:
        """So many requests has the server that it hasn't answered."""
        return sum(len(link.slots) for link in list(self._links))

    def deliver(self) -> None:
        """Let all pass that is held back, in its order, and return when it was carried out.

        It waits for something to be held back: a test that saw the server do what it was asked to may be here before
        the answer is.

        Raises:
            TimeoutError: nothing came.
        """
        self._do(self._deliver())

    def say(self, data: bytes) -> None:
        """Send this to every client, unasked."""
        self._do(self._say(data))

    def freeze(self, of: str | None = None) -> None:
        """Freeze the connections of now, or those on which a command was ever sent. New ones work."""
        self._do(self._freeze(of))

    def lead_to(self, port: int) -> None:
        """New connections lead to this server; those of now stay where they are."""
        self._server = ("127.0.0.1", port)

    def down(self) -> None:
        """Cut every connection, and refuse new ones until ``up``."""
        self._down = True
        self._do(self._hang_up())

    def up(self) -> None:
        self._down = False

    def reset(self) -> None:
        """Begin anew: no plans, no policy, nothing held, and every connection cut on which something is missing."""
        self.policy = None
        self._plans.clear()
        self._do(self._hang_up(lambda link: link.hurt))
        self.calls.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE)

    # What its connections ask

    def judge(self, name: str, value: list[Any], link: Link) -> Fault:
        """The fate of what came, which is noted."""
        fault = next((fault for fault in list(self._plans) if fault.meant_for(name)), None)
        if fault is not None:
            self._plans.remove(fault)
        elif self.policy is not None:
            fault = self.policy(name, value, link)
        fault = fault or PASS
        self.calls.append(Call(name, str(fault), link.number))
        return fault

    def hold(self, fault: Fault) -> Held:
        held = Held(fault.behind)
        self._held.append(held)
        self._came.set()
        return held

    def due(self, name: str) -> list[Held]:
        """What is to go behind a request, if it is of this name."""
        due = [held for held in self._held if held.behind == name]
        self._held = [held for held in self._held if held.behind != name]
        return due

    def copy(self, fault: Fault, requests: list[bytes]) -> None:
        """Hold back a copy of the last of these requests. The others say who is asking."""
        self._begin(self._copy(self.hold(fault), requests))

    # Its thread

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
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
        await self._hang_up()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # he has changed his mind
        if self._down:
            client.close()
        else:
            task = self._begin(self._serve(client))
            task.add_done_callback(lambda task: client.close() if task.cancelled() else None)  # it may not have begun

    async def _serve(self, sock: socket.socket) -> None:
        client = Stream(*await asyncio.open_connection(sock=sock))
        try:
            server = Stream(*await asyncio.open_connection(*self._server))
            self._connected += 1
            link = Link(self, self._connected, client, server)
            self._links[link] = asyncio.current_task()
            try:
                await link.run()
            finally:
                del self._links[link]
                server.close()
        except OSError:
            pass  # the server is down
        finally:
            client.close()

    async def _deliver(self) -> None:
        if not self._held:
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), PATIENCE / 2)
        held, self._held = self._held, []
        for each in held:
            await each.go()

    async def _say(self, data: bytes) -> None:
        for link in self._links:
            link.say(data)

    async def _freeze(self, of: str | None) -> None:
        for link in list(self._links):
            if of is None or of in link.asked:
                link.freeze()

    async def _hang_up(self, doomed: Callable[[Link], bool] = lambda link: True) -> None:
        spared = {task for link, task in self._links.items() if not doomed(link)}
        tasks = [task for task in self._tasks if task not in spared]
        for link in filter(doomed, self._links):
            link.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # connections close in the next turn of the loop
        self._held.clear()

    async def _copy(self, held: Held, requests: list[bytes]) -> None:
        await held.gate.wait()
        try:
            own = Stream(*await asyncio.open_connection(*self._server))
            for request in requests:
                own.write(request)
            for _ in requests:
                await own.next()
            own.close()
        finally:
            held.done.set()

"""One client's connection through the proxy of ``proxy.py``, with the faults of its requests, replies and messages."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.probes.scripts import NAMES, sha_of
from tests.resp import ErrorReply, Frame, Push, Stream

if TYPE_CHECKING:
    from tests.proxy import Proxy

ACTIONS = {"pass", "drop", "delay", "duplicate", "late copy", "cut", "freeze", "replace"}
EVALS = {"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"}
MESSAGES = {"message", "pmessage", "smessage"}
SUBSCRIPTIONS = {f"{kind}{step}SCRIBE" for kind in ("", "P", "S") for step in ("SUB", "UNSUB")}
"""Commands that get one reply per channel, in the form of messages."""
LOGIN = {"HELLO", "AUTH", "SELECT"}


@dataclass(frozen=True)
class Fault:
    """A fault; ``Proxy.plan`` documents the fields."""

    action: str = "pass"
    direction: str = "request"
    of: str | None = None
    behind: str | None = None
    data: bytes = b""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS or self.direction not in {"request", "reply"}:
            raise ValueError(f"there is no fault {self}")

    def __str__(self) -> str:
        return self.action if self.action == "pass" else f"{self.action} {self.direction}"

    def meant_for(self, name: str) -> bool:
        return is_script(name) if self.of is None else self.of == name


PASS = Fault()


def is_script(name: str) -> bool:
    """Whether this is the name of a script call; the scripts of tests are named EVAL."""
    return "/" in name or name in EVALS


class DelayedItem:
    """A request or reply that waits for ``release``; ``done`` is set when it was executed."""

    def __init__(self, behind: str | None) -> None:
        self.behind = behind
        self.release = asyncio.Event()
        self.done = asyncio.Event()

    async def execute(self) -> None:
        self.release.set()
        await self.done.wait()


@dataclass(eq=False)
class PendingRequest:
    """A request that the server has received and not answered yet."""

    name: str
    fault: Fault
    left: int | None = 1
    """How many frames of the reply are missing; None: until no channel is left."""
    discard_reply: bool = False
    held: DelayedItem | None = None
    behind: list[DelayedItem] = field(default_factory=list)


class ProxyConnection:
    """A client's connection, and its connection to the server."""

    def __init__(self, proxy: Proxy, number: int, client: Stream, server: Stream) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._login: list[bytes] = []
        self._held: list[DelayedItem] = []
        self._channels: dict[str, set[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._frozen = self._data_lost = self._client_gone = False
        self.number = number
        self.pending_requests: deque[PendingRequest] = deque()
        self.sent_names: set[str] = set()
        """The names of the requests that the client has sent."""
        self.answered_scripts = 0
        """How many script calls got a reply."""

    @property
    def damaged(self) -> bool:
        """Whether data of this connection was lost or is held back."""
        return self._frozen or self._data_lost or any(not held.release.is_set() for held in self._held)

    async def run(self) -> None:
        """Forward in both directions until one side closes. Requests that have reached the server are still
        executed."""
        requests, replies = asyncio.create_task(self._requests()), asyncio.create_task(self._replies())
        self._tasks = [requests, replies]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._frozen:
                await asyncio.Event().wait()
            self._client_gone = True
            if self.pending_requests and not replies.done():
                await replies
        finally:
            self._stop()

    def freeze(self) -> None:
        """Keep the connection open, but forward nothing more: neither side notices that the other one closes."""
        self._frozen = True
        self._stop()

    def push(self, data: bytes) -> None:
        self._client.write(data)

    def abort(self) -> None:
        for stream in (self._client, self._server):
            stream.writer.transport.abort()

    def _stop(self) -> None:
        for pump in self._tasks:
            pump.cancel()
        for held in self._held:
            held.done.set()

    async def _requests(self) -> None:
        lost = False
        while (frame := await self._client.next()) is not None:
            lost = lost or await self._request(frame)
            self._data_lost |= lost

    async def _request(self, frame: Frame) -> bool:
        """Forward a request, or apply its fault. Returns whether all that follows is lost."""
        name = name_of(frame.value)
        self.sent_names.add(name)
        request = PendingRequest(name, self._proxy.fault_for(name, frame.value, self))
        if name in SUBSCRIPTIONS:
            request.left = len(frame.value) - 1 or None
        fault = request.fault if request.fault.direction == "request" else PASS
        match fault.action:
            case "drop":
                return True
            case "replace":
                self._client.write(fault.data)
                return False
            case "cut" | "freeze":
                await self._end(fault)
                return True
            case "delay":
                request.held = await self._wait_until_released(fault)
            case "late copy":
                self._proxy.hold_late_copy(fault, [*self._login, frame.raw])
        if name in LOGIN:
            self._login.append(frame.raw)
        request.behind = self._proxy.take_held_behind(name)
        self._send(request, frame.raw)
        if fault.action == "duplicate":
            self._send(PendingRequest(name, PASS, request.left, discard_reply=True), frame.raw)
        return False

    def _send(self, request: PendingRequest, raw: bytes) -> None:
        self.pending_requests.append(request)
        self._server.write(raw)

    async def _replies(self) -> None:
        lost = False
        while (frame := await self._server.next()) is not None:
            request = self._request_of(frame.value)
            if request is None:
                fault = self._proxy.fault_for(text(frame.value[0]), frame.value, self)
            else:
                fault, request.fault = request.fault, PASS
                await self._executed(request)
            if fault.direction == "request":  # it was applied to the request already
                fault = PASS
            if not lost and not (request is not None and request.discard_reply):
                lost = await self._forward_reply(frame.raw, fault, is_message=request is None)
                self._data_lost |= lost
            if self._client_gone and not self.pending_requests:
                return

    async def _executed(self, request: PendingRequest) -> None:
        """Send the items that follow this request, before its client gets the reply."""
        self.answered_scripts += is_script(request.name)
        if request.held is not None:
            request.held.done.set()
        for held in request.behind:
            await held.execute()

    async def _forward_reply(self, raw: bytes, fault: Fault, *, is_message: bool) -> bool:
        """Forward a reply, or apply its fault. Returns whether all that follows is lost."""
        match fault.action:
            case "drop":
                return not is_message
            case "replace":
                self._client.write(fault.data.replace(b"{reply}", raw))
            case "cut" | "freeze":
                await self._end(fault)
                return True
            case "delay":
                held = await self._wait_until_released(fault)
                self._client.write(raw)
                held.done.set()
            case "duplicate":
                self._client.write(raw + raw)
            case _:
                self._client.write(raw)
        return False

    async def _end(self, fault: Fault) -> None:
        self._client.write(fault.data)
        if fault.action == "cut":
            self._client.close()
        else:
            self.freeze()
            await asyncio.sleep(0)  # which cancels this pump

    async def _wait_until_released(self, fault: Fault) -> DelayedItem:
        held = self._proxy.hold_back(fault)
        self._held.append(held)
        await held.release.wait()
        return held

    def _request_of(self, value: Any) -> PendingRequest | None:
        """The request that a frame answers, or None for a message. A complete reply ends its request."""
        pushed = isinstance(value, Push) or (isinstance(value, list) and bool(self.sent_names & SUBSCRIPTIONS))
        kind = text(value[0]) if pushed and value else ""
        request = self.pending_requests[0] if self.pending_requests else None
        if kind in MESSAGES or (isinstance(value, Push) and (request is None or kind.upper() != request.name)):
            return None
        if request is None:
            return PendingRequest("", PASS)  # without a request, such as "too many clients"
        if request.name in SUBSCRIPTIONS and not isinstance(value, ErrorReply):
            self._count_subscription(request, kind, value[1])
        else:
            request.left = 0
        if request.left == 0:
            self.pending_requests.popleft()
        return request

    def _count_subscription(self, request: PendingRequest, kind: str, channel: Any) -> None:
        channels = self._channels.setdefault(kind.replace("unsub", "sub"), set())
        if "unsub" in kind:
            channels.discard(channel)
        else:
            channels.add(channel)
        if request.left is not None:
            request.left -= 1
        elif not channels:
            request.left = 0


def name_of(request: list[Any]) -> str:
    """The script's name for a script call, else the command."""
    command = text(request[0]).upper()
    if command not in EVALS or len(request) < 2:
        return command
    sha = text(request[1]).lower() if "SHA" in command else hashlib.sha1(request[1]).hexdigest()
    return _scripts().get(sha, command)


@cache
def _scripts() -> dict[str, str]:
    """The names of the package's scripts, by hash."""
    return {sha_of(name): name for name in NAMES}


def text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

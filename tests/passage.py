"""What passes the proxy of ``proxy.py``: one connection of a client, and what may happen to requests, replies and
messages on it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.probes.scripts import NAMES, sha_of
from tests.resp import Frame, Push, Refusal, Stream

if TYPE_CHECKING:
    from tests.proxy import Proxy

ACTIONS = {"pass", "drop", "delay", "duplicate", "late copy", "cut", "freeze", "replace"}
EVALS = {"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"}
MESSAGES = {"message", "pmessage", "smessage"}
SUBSCRIPTIONS = {f"{kind}{step}SCRIBE" for kind in ("", "P", "S") for step in ("SUB", "UNSUB")}
"""Commands that are answered once per channel, in the form of messages."""
LOGIN = {"HELLO", "AUTH", "SELECT"}


@dataclass(frozen=True)
class Fault:
    """As ``Proxy.plan`` explains."""

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
    """Whether a script call is so named; the scripts of tests go by EVAL."""
    return "/" in name or name in EVALS


class Held:
    """Something that is held back at a gate, until it may go; ``done`` when it was carried out."""

    def __init__(self, behind: str | None) -> None:
        self.behind = behind
        self.gate = asyncio.Event()
        self.done = asyncio.Event()

    async def go(self) -> None:
        self.gate.set()
        await self.done.wait()


@dataclass(eq=False)
class Slot:
    """A request that the server has, and hasn't answered yet."""

    name: str
    fault: Fault
    left: int | None = 1
    """How many frames the answer has still; None: until no channel is left."""
    swallow: bool = False
    held: Held | None = None
    behind: list[Held] = field(default_factory=list)


class Link:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, number: int, client: Stream, server: Stream) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._login: list[bytes] = []
        self._held: list[Held] = []
        self._channels: dict[str, set[Any]] = {}
        self._pumps: list[asyncio.Task[None]] = []
        self._frozen = self._lost = self._client_gone = False
        self.number = number
        self.slots: deque[Slot] = deque()
        self.asked: set[str] = set()
        """The names of what the client has sent."""
        self.answered = 0
        """How many script calls were answered."""

    @property
    def hurt(self) -> bool:
        """Whether something is missing on it, or held back."""
        return self._frozen or self._lost or any(not held.gate.is_set() for held in self._held)

    async def run(self) -> None:
        """Pass things on, until one side is gone. What has reached the server is carried out, though nobody may hear."""
        requests, replies = asyncio.create_task(self._requests()), asyncio.create_task(self._replies())
        self._pumps = [requests, replies]
        try:
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._frozen:
                await asyncio.Event().wait()
            self._client_gone = True
            if self.slots and not replies.done():
                await replies
        finally:
            self._stop()

    def freeze(self) -> None:
        """The connection stays open, and nothing goes through any more: neither side hears of the other's end."""
        self._frozen = True
        self._stop()

    def say(self, data: bytes) -> None:
        self._client.write(data)

    def abort(self) -> None:
        for stream in (self._client, self._server):
            stream.writer.transport.abort()

    def _stop(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        for held in self._held:
            held.done.set()

    async def _requests(self) -> None:
        lost = False
        while (frame := await self._client.next()) is not None:
            lost = lost or await self._request(frame)
            self._lost |= lost

    async def _request(self, frame: Frame) -> bool:
        """Pass a request on, or not; returns whether what follows is lost."""
        name = name_of(frame.value)
        self.asked.add(name)
        slot = Slot(name, self._proxy.judge(name, frame.value, self))
        if name in SUBSCRIPTIONS:
            slot.left = len(frame.value) - 1 or None
        fault = slot.fault if slot.fault.direction == "request" else PASS
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
                slot.held = await self._wait(fault)
            case "late copy":
                self._proxy.copy(fault, [*self._login, frame.raw])
        if name in LOGIN:
            self._login.append(frame.raw)
        slot.behind = self._proxy.due(name)
        self._send(slot, frame.raw)
        if fault.action == "duplicate":
            self._send(Slot(name, PASS, slot.left, swallow=True), frame.raw)
        return False

    def _send(self, slot: Slot, raw: bytes) -> None:
        self.slots.append(slot)
        self._server.write(raw)

    async def _replies(self) -> None:
        lost = False
        while (frame := await self._server.next()) is not None:
            slot = self._slot_of(frame.value)
            if slot is None:
                fault = self._proxy.judge(text(frame.value[0]), frame.value, self)
            else:
                fault, slot.fault = slot.fault, PASS
                await self._carried_out(slot)
            if fault.direction == "request":  # it had its effect there
                fault = PASS
            if not lost and not (slot is not None and slot.swallow):
                lost = await self._answer(frame.raw, fault, alone=slot is None)
                self._lost |= lost
            if self._client_gone and not self.slots:
                return

    async def _carried_out(self, slot: Slot) -> None:
        """What was to go behind it goes now, before its client may do anything else."""
        self.answered += is_script(slot.name)
        if slot.held is not None:
            slot.held.done.set()
        for held in slot.behind:
            await held.go()

    async def _answer(self, raw: bytes, fault: Fault, *, alone: bool) -> bool:
        """Pass an answer on, or not; returns whether what follows is lost."""
        match fault.action:
            case "drop":
                return not alone
            case "replace":
                self._client.write(fault.data.replace(b"{reply}", raw))
            case "cut" | "freeze":
                await self._end(fault)
                return True
            case "delay":
                held = await self._wait(fault)
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

    async def _wait(self, fault: Fault) -> Held:
        held = self._proxy.hold(fault)
        self._held.append(held)
        await held.gate.wait()
        return held

    def _slot_of(self, value: Any) -> Slot | None:
        """What a frame answers, or None for a message. An answer that is complete gives up its slot."""
        pushed = isinstance(value, Push) or (isinstance(value, list) and bool(self.asked & SUBSCRIPTIONS))
        kind = text(value[0]) if pushed and value else ""
        slot = self.slots[0] if self.slots else None
        if kind in MESSAGES or (isinstance(value, Push) and (slot is None or kind.upper() != slot.name)):
            return None
        if slot is None:
            return Slot("", PASS)  # unasked, such as "too many clients"
        if slot.name in SUBSCRIPTIONS and not isinstance(value, Refusal):
            self._subscribed(slot, kind, value[1])
        else:
            slot.left = 0
        if slot.left == 0:
            self.slots.popleft()
        return slot

    def _subscribed(self, slot: Slot, kind: str, channel: Any) -> None:
        channels = self._channels.setdefault(kind.replace("unsub", "sub"), set())
        if "unsub" in kind:
            channels.discard(channel)
        else:
            channels.add(channel)
        if slot.left is not None:
            slot.left -= 1
        elif not channels:
            slot.left = 0


def name_of(request: list[Any]) -> str:
    """A script call is named by its script, any other request by its command."""
    command = text(request[0]).upper()
    if command not in EVALS or len(request) < 2:
        return command
    sha = text(request[1]).lower() if "SHA" in command else hashlib.sha1(request[1]).hexdigest()
    return _scripts().get(sha, command)


@cache
def _scripts() -> dict[str, str]:
    """The names of the product's scripts, by their hashes."""
    return {sha_of(name): name for name in NAMES}


def text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

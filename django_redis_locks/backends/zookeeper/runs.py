"""Execute steps: in the thread that waits for the reply, in a task, or in the background."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from ...core.clock import system_now
from ...core.errors import LockBackendError, LockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .requests import Request, Step
    from .session import Session


def _expired() -> LockBackendError:
    """Return the error of requests to an earlier session."""
    return LockBackendError("the session with ZooKeeper has expired", outcome_unknown=True, transient=True)


def call(session: Session, step: Step, seconds: float) -> Any:
    """Execute a step, and return its reply.

    Raises:
        LockBackendError: it wasn't completed in time, or was refused.
    """
    deadline = system_now() + seconds
    replies: Any = None
    while True:
        try:
            requests = step.send(replies)
        except StopIteration as end:
            return end.value
        client = session.client
        if not client.connected and not client.wait_connected(max(0.0, deadline - system_now())):
            raise client.not_connected()
        generation = session.generation
        replies = client.send(requests, max(0.001, deadline - system_now()))
        if generation != session.generation:
            raise _expired()


async def acall(session: Session, step: Step, seconds: float) -> Any:
    """Execute a step without blocking the event loop, and return its reply.

    Raises:
        LockBackendError: it wasn't completed in time, or was refused.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def end(reply: Any) -> None:
        if not future.done():
            future.set_result(reply)

    def on_reply(reply: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(end, reply)

    run = Run(session, step, on_reply)
    run.begin()
    try:
        reply = await asyncio.wait_for(future, seconds)
    except TimeoutError:
        raise run.timed_out() from None
    if isinstance(reply, Exception):
        raise reply
    return reply


def call_many(session: Session, steps: Sequence[Step], seconds: float) -> list[Any]:
    """Execute independent steps at the same time. Return the reply of each, or its ``LockBackendError``."""
    replies: list[Any] = [None] * len(steps)
    missing = set(range(len(steps)))
    done = threading.Event()

    def record(number: int, reply: Any) -> None:
        replies[number] = reply
        missing.discard(number)
        if not missing:
            done.set()

    runs = [Run(session, step, lambda reply, number=number: record(number, reply)) for number, step in enumerate(steps)]  # type: ignore[misc]
    for run in runs:
        run.begin()
    done.wait(seconds)
    for number in list(missing):
        replies[number] = runs[number].timed_out()
    return replies


class Run:
    """A step in the background.

    Args:
        session: sends its requests.
        step: the step.
        on_reply: called once with the reply or the exception, in any thread. It must neither raise nor block.
    """

    def __init__(self, session: Session, step: Step, on_reply: Callable[[Any], object]) -> None:
        self._session = session
        self._step = step
        self._on_reply = on_reply
        self._sent = False
        self._requests: Sequence[Request] = ()
        self._generation = 0

    def begin(self) -> None:
        """Send the first requests as soon as there is a connection."""
        self._go_on(None)

    def timed_out(self) -> LockBackendError:
        """Return the error of a caller that doesn't wait any longer."""
        if not self._sent:
            return self._session.client.not_connected()
        return LockBackendError(
            f"ZooKeeper at {self._session.hosts}: no reply in time",
            outcome_unknown=True,
            transient=True,
            unreachable=True,
        )

    def _go_on(self, replies: Any) -> None:
        if isinstance(replies, LockBackendError):
            self._on_reply(replies)
            return
        try:
            self._requests = self._step.send(replies)
            self._session.when_connected(self._send)
        except StopIteration as end:
            self._on_reply(end.value)
        except (LockError, ValueError) as error:
            self._on_reply(error)

    def _send(self) -> None:
        self._sent = True
        self._generation = self._session.generation
        self._session.client.post(self._requests, self._receive)

    def _receive(self, replies: list[Any] | LockBackendError) -> None:
        self._go_on(replies if self._generation == self._session.generation else _expired())

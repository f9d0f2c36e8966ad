"""Rounds of tasks, on the connections that the tasks of their event loop share."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ..redis.direct import AGAIN
from .dispatch import NOT_SENT
from .rounds import GRACE, Round

if TYPE_CHECKING:
    from .dispatch import Dispatcher, Sending
    from .rounds import Ask, Replies

ENDED: Final = LockBackendError("the event loop has ended", outcome_unknown=True, transient=True)


class TaskRounds:
    """Carries out rounds for tasks.

    Args:
        dispatcher: what rounds have in common.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._tasks: set[asyncio.Task[None]] = set()

    def forget(self) -> None:
        """Forget the tasks of the parent."""
        self._tasks = set()

    async def ask(self, ask: Ask) -> Replies:
        """Carry out one round."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def on_enough() -> None:
            if running_loop() is loop:
                followed.end(done)
                return
            try:
                loop.call_soon_threadsafe(_set_done, done)
            except RuntimeError:
                pass  # the loop is closed, so no task waits

        followed = _Followed(loop, self._dispatcher)
        round_ = Round(ask, on_enough)
        try:
            for sending in self._dispatcher.sendings(ask, round_):
                self._dispatcher.send(sending, partial(self._start, loop, followed), partial(self._start_soon, loop))
            round_.check()
            if followed.open:
                self._start_task(loop, followed.follow())
            await done
        finally:
            replies = round_.close()
        return replies

    def _start(self, loop: asyncio.AbstractEventLoop, followed: _Followed, sending: Sending) -> None:
        """Send a request in the thread of the loop: on an open connection, else in a task."""
        direct = sending.member.direct
        if direct is None or len(sending.request) > 1:
            self._start_task(loop, self._call(sending))
        elif not sending.wanted():
            self._dispatcher.answer(sending, NOT_SENT)
        elif (future := direct.abegin(sending.data)) is None:
            self._start_task(loop, self._call(sending))
        else:
            followed.add(future, sending, partial(self._start_soon, loop))

    def _start_soon(self, loop: asyncio.AbstractEventLoop, sending: Sending) -> None:
        """Send a request in a task of the loop, from any thread. If the loop is closed, in a thread."""
        if running_loop() is loop:
            self._start_task(loop, self._call(sending))
            return
        try:
            loop.call_soon_threadsafe(lambda: self._start_task(loop, self._call(sending)))
        except RuntimeError:
            self._dispatcher.start_in_thread(sending)

    def _start_task(self, loop: asyncio.AbstractEventLoop, job: Any) -> None:
        task = loop.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, sending: Sending) -> None:
        reply: Any = ENDED
        try:
            reply = await sending.member.acall(sending.request) if sending.wanted() else NOT_SENT
        finally:
            self._dispatcher.answer(sending, reply)


class _Followed:
    """The requests of a round that were sent on shared connections.

    Attributes:
        open: those without a reply yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._loop = loop
        self._all: asyncio.Future[None] | None = None
        self._done: asyncio.Future[None] | None = None
        self.open: dict[asyncio.Future[Any], Sending] = {}

    def add(self, future: asyncio.Future[Any], sending: Sending, repeat: Any) -> None:
        """Follow a request. ``repeat`` sends it again, if it has to be."""
        self.open[future] = sending
        future.add_done_callback(partial(self._answer, repeat))

    def _answer(self, repeat: Any, future: asyncio.Future[Any]) -> None:
        sending = self.open.pop(future, None)
        if sending is None:
            return
        assert sending.member.direct is not None  # noqa: S101 - it has sent the request
        reply = ENDED if future.cancelled() else sending.member.direct.reply_of(future)
        if reply is AGAIN:
            repeat(sending)
        else:
            self._dispatcher.answer(sending, sending.member.recorded([reply]))
        if not self.open:
            _set_done(self._all)
            _set_done(self._done)

    def end(self, done: asyncio.Future[None]) -> None:
        """Set the future of a round that has ended when all replies have arrived, or a moment later."""
        if self.open:
            self._done = done
            self._loop.call_later(GRACE, _set_done, done)
        else:
            _set_done(done)

    async def follow(self) -> None:
        """Wait for all replies. When the loop ends, it cancels this task: then other loops and threads may go on with the
        tokens of these requests."""
        self._all = self._loop.create_future()
        try:
            if self.open:
                await self._all
        finally:
            for sending in self.open.values():
                self._dispatcher.answer(sending, ENDED)
            self.open.clear()


def _set_done(done: asyncio.Future[None] | None) -> None:
    if done is not None and not done.done():
        done.set_result(None)

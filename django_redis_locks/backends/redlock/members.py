"""One server of a Redlock: the backend that reaches it, the order of its requests, and what is known of its state."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ...core import clock
from ...core.errors import LockBackendError
from ..redis import RedisBackend
from ..redis.direct import DirectRequests

if TYPE_CHECKING:
    from ...core.commands import Command
    from ..base import Backend
    from .dispatch import Sending
    from .workers import Starter

_log = logging.getLogger("django_redis_locks.backend")

RETRY_INTERVAL: Final = 1.0
"""Seconds between the requests to a member that is known to be down."""

MOST_LEFTOVERS: Final = 10_000
"""The largest number of releases that a member owes. The oldest ones beyond it end with their leases."""

Request = tuple["Command[Any]", ...]
"""The commands of one request. The reply to several is a list."""


class Member:
    """One server.

    Args:
        backend: sends the commands.
        starter: runs what is sent in the background.
        timeout: seconds for a request of several commands.

    Attributes:
        backend: sends the commands.
        direct: sends them without waiting for the replies; None if the backend can't.
        failure: why it is known to be down; None if it isn't.
    """

    def __init__(self, backend: Backend, starter: Starter, timeout: float) -> None:
        self.backend = backend
        self.direct = DirectRequests(backend) if isinstance(backend, RedisBackend) else None
        self._starter = starter
        self._timeout = timeout
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Forget the requests of the parent."""
        self._mutex = threading.RLock()
        self._lines: dict[str, list[Sending]] = {}
        self._leftovers: deque[tuple[float, Request]] = deque(maxlen=MOST_LEFTOVERS)
        self._late_copies: dict[str, float] = {}
        self._next_try = 0.0
        self._flush_planned = False
        self.failure: LockBackendError | None = None

    # Is it down?

    def may_be_asked(self) -> bool:
        """Return whether a request is to be sent: it isn't known to be down, or is to be tried again."""
        if self.failure is None:
            return True
        with self._mutex:
            now = clock.now()
            if now < self._next_try:
                return False
            self._next_try = now + RETRY_INTERVAL
            return True

    def known_failure(self) -> LockBackendError:
        """Return the error for a request that isn't sent because the member is known to be down."""
        text = "" if self.failure is None else str(self.failure.args[0]).partition(". ")[0]
        return LockBackendError(text, transient=True, unreachable=True)

    def _record_reply(self) -> None:
        if self.failure is not None:
            self.failure = None
            _log.warning("%s, a member of a Redlock, answers again", self.backend)
        if self._leftovers:
            self._starter.start(self.send_leftovers)

    def _record_failure(self, failure: LockBackendError) -> LockBackendError:
        if failure.unreachable:
            with self._mutex:
                self._next_try = clock.now() + RETRY_INTERVAL
                first, self.failure = self.failure is None, failure
            if first:
                _log.warning("%s, a member of a Redlock, doesn't answer: %s", self.backend, failure)
        return failure

    # Requests

    def call(self, request: Request) -> Any:
        """Send a request once, or twice if its connection was closed while idle. Return the reply, or the error."""
        try:
            reply = self._call(request)
            if isinstance(reply, LockBackendError) and reply.on_reused_connection:
                reply = self._call(request)
        except Exception as error:  # noqa: BLE001 - the caller waits for a reply
            reply = LockBackendError(repr(error), outcome_unknown=True)
        return self._recorded(reply)

    def recorded(self, replies: list[Any]) -> Any:
        """Return the reply to a request from those to its commands, or the first error."""
        return self._recorded(replies[0] if len(replies) == 1 else _first_error(replies))

    def _call(self, request: Request) -> Any:
        try:
            if len(request) == 1:
                return self.backend.call(request[0])
        except LockBackendError as failure:
            return failure
        return _first_error(self.backend.call_many(request, self._timeout))

    async def acall(self, request: Request) -> Any:
        """As ``call``, without blocking the event loop."""
        try:
            reply = await self._acall(request)
            if isinstance(reply, LockBackendError) and reply.on_reused_connection:
                reply = await self._acall(request)
        except Exception as error:  # noqa: BLE001 - the caller waits for a reply
            reply = LockBackendError(repr(error), outcome_unknown=True)
        return self._recorded(reply)

    async def _acall(self, request: Request) -> Any:
        if len(request) > 1:
            return _first_error(await asyncio.gather(*map(self._acall_one, request)))
        return await self._acall_one(request[0])

    async def _acall_one(self, command: Command[Any]) -> Any:
        try:
            return await self.backend.acall(command)
        except LockBackendError as failure:
            return failure

    def call_batch(self, requests: list[Request], timeout: float) -> list[Any]:
        """Send several requests in one write. Return the reply to each, or its error."""
        try:
            commands = [command for request in requests for command in request]
            replies = iter(self.backend.call_many(commands, timeout))
            return [
                self._recorded(next(replies) if len(request) == 1 else _first_error([next(replies) for _ in request]))
                for request in requests
            ]
        except Exception as error:  # noqa: BLE001 - the caller waits for replies
            return [LockBackendError(repr(error), outcome_unknown=True)] * len(requests)

    def _recorded(self, reply: Any) -> Any:
        if isinstance(reply, LockBackendError):
            return self._record_failure(reply)
        if self.failure is not None or self._leftovers:
            self._record_reply()
        return reply

    # The order of the requests of one token

    def begin_in_order(self, token: str, request: Sending) -> Sending | None:
        """Return the request of a token that is under way. None: this one may be sent now; otherwise ``answered`` returns it
        when the member has answered the earlier ones."""
        with self._mutex:
            line = self._lines.get(token)
            if line is None:
                self._lines[token] = [request]
                return None
            line.append(request)
            return line[0]

    def has_unanswered(self, token: str) -> bool:
        """Return whether a request of a token waits for its reply."""
        return token in self._lines

    def is_under_way(self, token: str, request: Sending) -> bool:
        """Return whether this request of a token waits for its reply."""
        with self._mutex:
            line = self._lines.get(token)
            return line is not None and line[0] is request

    def answered(self, token: str, request: Sending) -> Sending | None:
        """Return the next request of a token, which is to be sent now, unless another one than ``request`` is under way."""
        with self._mutex:
            line = self._lines.get(token)
            if line is None or line[0] is not request:
                return None
            if len(line) == 1:
                del self._lines[token]
                return None
            del line[0]
            return line[0]

    # What is left to be released

    def expect_late_copy(self, token: str, seconds: float) -> None:
        """Remember for some time that an acquire with this token got no reply, and may yet be carried out."""
        now = clock.now()
        with self._mutex:
            while self._late_copies and next(iter(self._late_copies.values())) <= now:
                del self._late_copies[next(iter(self._late_copies))]
            self._late_copies[token] = now + seconds

    def may_have_late_copy(self, token: str) -> bool:
        """Return whether an acquire with this token may yet be carried out. It is answered so once."""
        return bool(self._late_copies) and self._late_copies.pop(token, None) is not None

    def release_later(self, request: Request, seconds: float) -> None:
        """Send a release when the member answers again, unless that takes longer than a lease of ``seconds``."""
        with self._mutex:
            self._leftovers.append((clock.now() + seconds, request))
        self._plan_flush()

    def _plan_flush(self) -> None:
        with self._mutex:
            planned, self._flush_planned = self._flush_planned, True
        if not planned:
            self._starter.start_later(RETRY_INTERVAL, self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        self.send_leftovers()

    def send_leftovers(self) -> None:
        """Send the releases that the member owes."""
        with self._mutex:
            now = clock.now()
            due = [(until, request) for until, request in self._leftovers if until > now]
            self._leftovers.clear()
        if not due:
            return
        replies = self.call_batch([request for _, request in due], self._timeout)
        unsent = [entry for entry, reply in zip(due, replies, strict=True) if isinstance(reply, LockBackendError)]
        if unsent:
            with self._mutex:
                self._leftovers.extendleft(reversed(unsent))
            self._plan_flush()


def _first_error(replies: list[Any]) -> Any:
    return next((reply for reply in replies if isinstance(reply, LockBackendError)), list(replies))

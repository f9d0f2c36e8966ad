"""The latch primitive: callers wait until a count, which other callers count down, is 0. All of them go on then."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ..core import clock, owners
from ..core.durations import Duration, lease_ms, wait_seconds
from ..core.errors import LockLost
from ..core.runner import arun, run
from .shared.latch_commands import LatchCommands, LatchReply, LatchRequest, Verdict
from .shared.retry import FirstReply

if TYPE_CHECKING:
    from ..core.commands import Command, Program
    from ..core.queue_values import Attempt
    from .shared.retry import CommandReply
    from .shared.wait_loop import Outcome

DAY: Final = 86_400_000
"""The default of ``expire``, in milliseconds. A latch is often forgotten, and a batch of jobs may take hours."""

LARGEST_COUNT: Final = 1_000_000_000
"""Beyond it a count is a mistake."""

LONGEST_PARTICIPANT: Final = 200
"""Bytes. The store keeps the ids of all participants until the latch opens."""


@dataclass(slots=True, unsafe_hash=True)
class Latch(LatchCommands):
    """A countdown latch: ``wait()`` waits until the count that ``try_set()`` has set is counted down to 0. Immutable. Each
    method has an asynchronous twin with the prefix ``a``; that of ``wait`` is ``await_``, because ``await`` is a keyword.

    A latch that isn't set is open: its count is 0, and nothing waits for it. So set it before anything counts it down. An
    open latch can be set again.

    Example::

        latch = locks.latch("import:2026-11")
        latch.try_set(len(files))
        for file in files:
            load.delay(file)  # each ends with locks.latch("import:2026-11").count_down(file)
        latch.wait()
    """

    def try_set(self, n: int, expire: Duration | None = None) -> bool:
        """Set the count, if the latch is open: it isn't set, or it was counted down to 0.

        Args:
            n: how often the latch must be counted down until it opens, 1 to 1 000 000 000.
            expire: seconds that the latch lives after its last change; by default a day. The setting ``EXPIRE`` doesn't
                apply.

        Returns:
            True if the count was set; False if the latch is closed already, which changes nothing.

        Raises:
            ValueError: ``n`` or ``expire`` is out of its range.
            LockBackendError: the store doesn't answer, or refuses, for ``BACKEND_WAIT`` seconds.
            LockKeyError: the key holds a value that is no latch.

        Example::

            if latch.try_set(3):
                start_three_workers()
        """
        return run(self._setting(n, expire), self.performer)

    async def atry_set(self, n: int, expire: Duration | None = None) -> bool:
        """Set the count, if the latch is open: it isn't set, or it was counted down to 0.

        Args:
            n: how often the latch must be counted down until it opens, 1 to 1 000 000 000.
            expire: seconds that the latch lives after its last change; by default a day. The setting ``EXPIRE`` doesn't
                apply.

        Returns:
            True if the count was set; False if the latch is closed already, which changes nothing.

        Raises:
            ValueError: ``n`` or ``expire`` is out of its range.
            LockBackendError: the store doesn't answer, or refuses, for ``BACKEND_WAIT`` seconds.
            LockKeyError: the key holds a value that is no latch.
        """
        return await arun(self._setting(n, expire), self.performer)

    def count_down(self, participant: str | None = None) -> int:
        """Count the latch down by one. The last count opens it, for all waiters of all processes. An open latch, one that
        isn't set included, stays as it is, as in Java.

        A call counts once, even if its request is repeated because a reply was lost.

        Args:
            participant: an id of at most 200 bytes that counts once until the latch opens, however often it is passed: for
                work that may be done twice, such as a task that is delivered again. By default each call counts.

        Returns:
            What is left of the count; 0 if the latch is open.

        Raises:
            ValueError: ``participant`` isn't such an id.
            LockBackendError: the store doesn't answer, or refuses, for ``BACKEND_WAIT`` seconds. If its
                ``outcome_unknown`` is True, the call may have counted.
            LockKeyError: the key holds a value that is no latch.

        Example::

            left = latch.count_down(self.request.id)  # once for each Celery task, whatever is delivered twice
        """
        return run(self._counting_down(participant), self.performer)

    async def acount_down(self, participant: str | None = None) -> int:
        """Count the latch down by one. The last count opens it, for all waiters of all processes. An open latch, one that
        isn't set included, stays as it is, as in Java.

        A call counts once, even if its request is repeated because a reply was lost.

        Args:
            participant: an id of at most 200 bytes that counts once until the latch opens, however often it is passed: for
                work that may be done twice, such as a task that is delivered again. By default each call counts.

        Returns:
            What is left of the count; 0 if the latch is open.

        Raises:
            ValueError: ``participant`` isn't such an id.
            LockBackendError: the store doesn't answer, or refuses, for ``BACKEND_WAIT`` seconds. If its
                ``outcome_unknown`` is True, the call may have counted.
            LockKeyError: the key holds a value that is no latch.
        """
        return await arun(self._counting_down(participant), self.performer)

    def count(self) -> int:
        """Read what is left of the count.

        Returns:
            The number; 0 if the latch is open.

        Raises:
            LockBackendError: the store doesn't answer, or refuses, for ``BACKEND_WAIT`` seconds.
            LockKeyError: the key holds a value that is no latch.
        """
        return run(self._counting(), self.performer)

    async def acount(self) -> int:
        """Read what is left of the count.

        Returns:
            The number; 0 if the latch is open.

        Raises:
            LockBackendError: the store doesn't answer, or refuses, for ``BACKEND_WAIT`` seconds.
            LockKeyError: the key holds a value that is no latch.
        """
        return await arun(self._counting(), self.performer)

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the latch is open. The store wakes the waiter.

        Args:
            timeout: seconds to wait; 0 asks once, None waits for ever.

        Returns:
            Whether the latch is open; False after ``timeout`` seconds.

        Raises:
            ValueError: ``timeout`` isn't a duration.
            LockLost: the latch ended during the wait without having been counted down: its time was over, or it was deleted
                or evicted.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long as
                ``timeout``.
            LockKeyError: the key holds a value that is no latch.

        Example::

            if not latch.wait(timeout=60):
                print(latch.count(), "are still at it")
        """
        request = LatchRequest(_timeout(timeout), None)
        try:
            return run(self._waiting(request), self.performer)
        except BaseException as failure:
            self._undo_request(request, failure)
            raise

    async def await_(self, timeout: Duration | None = None) -> bool:
        """Wait until the latch is open. The store wakes the waiter.

        Args:
            timeout: seconds to wait; 0 asks once, None waits for ever.

        Returns:
            Whether the latch is open; False after ``timeout`` seconds.

        Raises:
            ValueError: ``timeout`` isn't a duration.
            LockLost: the latch ended during the wait without having been counted down: its time was over, or it was deleted
                or evicted.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long as
                ``timeout``.
            LockKeyError: the key holds a value that is no latch.
        """
        request = LatchRequest(_timeout(timeout), owners.running_loop())
        try:
            return await arun(self._waiting(request), self.performer)
        except BaseException as failure:
            self._undo_request(request, failure)
            raise

    def _setting(self, n: int, expire: Duration | None) -> Program[bool]:
        if type(n) is not int or not 1 <= n <= LARGEST_COUNT:
            raise ValueError(f"n must be an int from 1 to {LARGEST_COUNT}, not {n!r}")
        command = self._set_command(n, DAY if expire is None else lease_ms(expire))
        was_set: bool = yield from self._answer(command)
        return was_set

    def _counting_down(self, participant: object) -> Program[int]:
        if participant is None:
            participant = ""
        elif not isinstance(participant, str) or not 1 <= len(participant.encode()) <= LONGEST_PARTICIPANT:
            raise ValueError(
                f"participant must be a str of 1 to {LONGEST_PARTICIPANT} bytes, or None, not {participant!r:.300}"
            )
        left: int = yield from self._answer(self._count_down_command(participant))
        return left

    def _counting(self) -> Program[int]:
        reply: LatchReply = yield from self._answer(self._get_command())
        return reply.left

    def _answer(self, command: Command[Any]) -> Program[Any]:
        return (yield from self._sending(command, inf, limits=self.options.call_limits))[0]

    def _waiting(self, request: LatchRequest) -> Program[bool]:
        verdict = yield from self._asking_and_waiting(request)
        if verdict is Verdict.ENDED:
            raise LockLost(
                f"latch {self.name!r} of alias {self.alias!r} ended before it was counted down: its time was over, or it was "
                "deleted",
                **self.error_context,
            )
        return verdict is Verdict.OPEN

    def _attempt_command(self, request: LatchRequest, attempt: Attempt) -> Command[LatchReply]:
        queue = None if request.waiter is None else request.waiter.queue
        if queue is not None and queue.conclusion is not None:
            known, reply = queue.conclusion
            if known == request.known:
                request.first = FirstReply(clock.now(), reply)  # no request is sent: the verdict never changes
        return self._get_command(request.known or 0, attempt)

    def _attempt_outcome(
        self, request: LatchRequest, attempt: Attempt, command_reply: CommandReply
    ) -> Outcome[Verdict]:
        reply: LatchReply = command_reply[0]
        request.position = reply.position
        if request.known is None:
            request.known = reply.generation
        verdict = reply.verdict(request.known)
        if verdict is Verdict.CLOSED:
            return verdict, False, reply.seconds_left
        if request.waiter is not None and request.waiter.queue is not None:
            request.waiter.queue.conclusion = request.known, reply
        return verdict, True, 0.0  # 0.0: the next waiter asks at once, since it may wait for another generation


def _timeout(timeout: Duration | None) -> float:
    return inf if timeout is None else wait_seconds(timeout, "timeout")

"""A value in the store that callers may wait for: what records and latches have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.effects import LeaveQueue
from ...core.errors import LockBackendError, LockKeyError
from ...core.queue_values import Attempt, Waiter
from ...core.runner import run_twice_if_interrupted
from .retry import retry_command
from .stored_object import StoredObject
from .wait_loop import wait_loop

if TYPE_CHECKING:
    from ...core.commands import Command, Program
    from .requests import WaitRequest
    from .retry import CommandReply, FirstReply, RetryLimits
    from .wait_loop import Outcome


@dataclass(slots=True, unsafe_hash=True)
class WatchedValue(StoredObject):
    """The value under one key."""

    def _attempt_command(self, request: Any, attempt: Attempt) -> Command[Any]:
        """Make the command that reads the value, and registers the waiter unless that is what it waits for."""
        raise NotImplementedError

    def _attempt_outcome(self, request: Any, attempt: Attempt, command_reply: CommandReply) -> Outcome[Any]:
        """Return the outcome of that command."""
        raise NotImplementedError

    def _asking_and_waiting(self, request: WaitRequest) -> Program[Any]:
        """Read the value once without queueing, and then whenever it may have changed, until it is what the request waits
        for, or its wait is over. Returns the last verdict."""
        # The head of the local queue may know a newer value than this caller, so the caller asks once before it queues
        started = clock.now()
        until = started + request.wait
        command_reply = yield from self._sending(self._attempt_command(request, Attempt()), until)
        verdict, final, _ = self._attempt_outcome(request, Attempt(), command_reply)
        request.wait -= clock.now() - started
        if final or request.wait <= 0:
            return verdict
        waiter = Waiter(self.lock_id, request.loop, self.keys.inbox, request=request)
        return (yield from wait_loop(self, request, waiter, verdict, self.options.acquire_limits))

    def _undo_request(self, request: WaitRequest, failure: BaseException) -> None:
        """Have the waiter of a request that failed leave its queue."""
        if request.waiter is not None:
            # 0.0: the next waiter asks at once, since a wake-up may have been consumed
            leave = LeaveQueue(request.waiter, 0.0)
            run_twice_if_interrupted(partial(self.performer.handlers[LeaveQueue], leave))
        if isinstance(failure, LockBackendError):
            self.with_context(failure)

    def _sending(
        self,
        command: Command[Any],
        until: float,
        first: FirstReply | None = None,
        limits: RetryLimits | None = None,
    ) -> Program[CommandReply]:
        """Send a command until it is answered, as ``retry_command`` does. By default a store that refuses is asked until
        that time."""
        limits, tuning = limits or self.options.acquire_limits, self.performer.tuning
        try:
            return (yield from retry_command(command, until, limits, tuning=tuning, first=first))
        except LockBackendError as failure:
            self.with_context(failure)
            raise

    def _foreign_value_error(self, kind: str, what: str) -> LockKeyError:
        """Return the error for a key that holds a value of another kind."""
        return LockKeyError(
            f"the key of {kind} {self.name!r} of alias {self.alias!r} holds {what}. "
            "Delete that value, or choose another key or KEY_PREFIX",
            **self.error_context,
        )

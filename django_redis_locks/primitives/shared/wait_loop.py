"""The acquire/wait loop: attempts a command when it is the caller's turn in the queue of this process, which in turn
waits among the queues of other processes in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from ...core import clock
from ...core.commands import Command, Program
from ...core.effects import LeaveQueue, Performer, Subscribe, Wait
from ...core.errors import LockBackendError
from ...core.queue_values import Attempt, Waiter
from .retry import retry_command

if TYPE_CHECKING:
    from .requests import WaitRequest
    from .retry import CommandReply, RetryLimits

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
W_contra = TypeVar("W_contra", bound="WaitRequest", contravariant=True)

UNQUEUED: Final = Attempt()
"""An attempt that is made without queueing."""


Outcome: TypeAlias = "tuple[V, bool, float]"
"""The outcome of an attempt: the verdict; whether it is final; and the seconds until the next attempt unless a wake-up
comes first."""


class Requester(Protocol[W_contra, V_co]):
    """Makes the command of an attempt, and interprets its reply."""

    @property
    def performer(self) -> Performer:
        """Carries the effects out."""

    def _attempt_command(self, request: W_contra, attempt: Attempt) -> Command[Any]: ...

    def _attempt_outcome(self, request: W_contra, attempt: Attempt, command_reply: CommandReply) -> Outcome[V_co]: ...


class Turns:
    """The turns of one caller to ask the store: those of its place in the queue of this process. Without a waiter it has
    one turn. Its public methods are programs.

    Where all is calm the first question is asked without queueing up: as a rule there is nothing to wait for. It may
    have been sent before; unless its reply is still to be read, the caller begins with a wait.

    If a program fails, the owner of the request removes its waiter from the queue.

    Attributes:
        give_up: when the request's wait is over, on the engine's clock.
    """

    __slots__ = ("_performer", "_request", "_waiter", "asked", "begin", "give_up", "subscribed", "uncontended")

    def __init__(self, performer: Performer, request: WaitRequest, waiter: Waiter | None) -> None:
        self._performer = performer
        self._request = request
        self._waiter = waiter
        self.begin = request.sent or clock.now()
        self.give_up = self.begin + request.wait
        request.waiter = waiter
        self.asked = request.sent > 0
        self.subscribed = False
        self.uncontended = waiter is not None and (
            request.first is not None or not (self.asked or request.contended or not performer.uncontended(waiter))
        )

    def first(self) -> Program[Attempt | None]:
        """Wait for the first turn. Returns the attempt, or None if there is none before ``give_up``."""
        if self._waiter is None or self.uncontended:
            return UNQUEUED
        attempt: Attempt | None = yield Wait(self._waiter, self.give_up)
        return attempt

    def ask(self, command: Command[Any], limits: RetryLimits) -> Program[CommandReply]:
        """Send the command of this turn until it is answered."""
        request, waiter = self._request, self._waiter
        request.position, request.maybe_executed = None, True
        first, request.first = request.first, None
        self.asked = True
        outage = None if waiter is None else waiter.queue
        return retry_command(command, self.give_up, limits, outage, self._performer.tuning, first)

    def next(self, attempt: Attempt, pause: float) -> Program[Attempt | None]:
        """Wait for the next turn: until a wake-up, or for ``pause`` seconds. Returns the attempt, or None if there is none
        before ``give_up``."""
        request, waiter, tuning = self._request, self._waiter, self._performer.tuning
        if waiter is None or (now := clock.now()) >= self.give_up:
            return None
        later: float | None = None
        if self.uncontended:
            self.uncontended = False
        else:
            if attempt.entry is None and not self.subscribed:
                self.subscribed = True
                # a change before the subscription sent no message
                seconds = min(tuning.subscribe_timeout, self.give_up - now)
                pause = 0.0 if (yield Subscribe(waiter.channel, seconds)) else pause
            later = min(tuning.max_poll_interval, pause)
        position, request.position = request.position, None  # passed on once: a wake-up may come between
        turn: Attempt | None = yield Wait(waiter, self.give_up, later, position)
        return turn

    def end(self, pause: float | None = None) -> Program[None]:
        """Leave the queue. ``pause`` is the time in seconds after which the next waiter asks; None for no change.

        Raises:
            LockBackendError: the head of the queue found the store down, and it was never this caller's turn.
        """
        request, waiter = self._request, self._waiter
        if waiter is not None:
            shared = waiter.line is waiter.loop
            if not self.uncontended or (shared and self._performer.end_uncontended(waiter.lock_id, None) is not waiter):
                most = self._performer.tuning.max_poll_interval
                yield LeaveQueue(waiter, None if pause is None else min(most, pause), request.position)
            request.waiter = None
            if pause is None and not self.asked and waiter.queue is not None and waiter.queue.failure is not None:
                raise LockBackendError(waiter.queue.failure, transient=True)
        request.waited = clock.now() - self.begin


def wait_loop(
    requester: Requester[W_contra, V], request: W_contra, waiter: Waiter | None, verdict: V, limits: RetryLimits
) -> Program[V]:
    """Ask whenever this waiter's turn has come, until it has a verdict or the request's wait is over; without a wait
    once. Returns the last verdict, or the one given if it was never our turn: the head of the queue has asked for the
    whole process."""
    turns = Turns(requester.performer, request, waiter)
    attempt = yield from turns.first()
    while attempt is not None:
        command_reply = yield from turns.ask(requester._attempt_command(request, attempt), limits)
        verdict, final, pause = requester._attempt_outcome(request, attempt, command_reply)
        if final:
            yield from turns.end(pause)
            return verdict
        attempt = yield from turns.next(attempt, pause)
    yield from turns.end()
    return verdict

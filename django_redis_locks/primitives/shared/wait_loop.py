"""The acquire/wait loop: attempts a command when it is the caller's turn in the queue of this process, which in turn
waits among the queues of other processes in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from ...core import clock
from ...core.commands import Command, Effect, Program
from ...core.effects import LeaveQueue, Performer, Subscribe, Wait
from ...core.errors import LockBackendError
from ...core.queue_values import Attempt, Waiter
from .retry import retry_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .requests import WaitRequest
    from .retry import CommandReply, RetryLimits

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
W_contra = TypeVar("W_contra", bound="WaitRequest", contravariant=True)

UNQUEUED: Final = Attempt()
"""An attempt that is made without queueing."""


Outcome: TypeAlias = "tuple[V, bool, float, Iterable[Effect[Any]]]"
"""The outcome of an attempt: the verdict; whether it is final; the seconds until the next attempt unless a wake-up
comes first; and effects to perform at once."""


class Requester(Protocol[W_contra, V_co]):
    """Makes the command of an attempt, and interprets its reply."""

    @property
    def performer(self) -> Performer:
        """Carries the effects out."""

    def _attempt_command(self, request: W_contra, attempt: Attempt) -> Command[Any]: ...

    def _attempt_outcome(self, request: W_contra, attempt: Attempt, command_reply: CommandReply) -> Outcome[V_co]: ...


def wait_loop(
    requester: Requester[W_contra, V], request: W_contra, waiter: Waiter | None, verdict: V, limits: RetryLimits
) -> Program[V]:
    """Ask whenever this waiter's turn has come, until it has a verdict or the request's wait is over; without a wait
    once. Returns the last verdict, or the one given if it was never our turn: the head of the queue has asked for the
    whole process.

    Where all is calm the first question is asked without queueing up: as a rule there is nothing to wait for. It may
    have been sent before this program began; unless its reply is still to be read, the loop begins with a wait.

    If it fails, the owner of the request undoes what the request holds."""
    tuning = requester.performer.tuning
    begin = request.sent or clock.now()
    give_up = begin + request.wait
    request.waiter = waiter
    first, request.first = request.first, None
    attempted, final = request.sent > 0, False
    uncontended = waiter is not None and (
        first is not None or (not attempted and requester.performer.uncontended(waiter))
    )
    pause = 0.0
    attempt: Attempt | None = UNQUEUED
    if waiter is not None and not uncontended:
        attempt = yield Wait(waiter, give_up)
    while attempt is not None:
        request.position, request.maybe_executed = None, attempt.adopted is None
        command_reply = (
            attempt.adopted.make_reply()
            if attempt.adopted is not None
            else (
                yield from retry_command(
                    requester._attempt_command(request, attempt),
                    give_up,
                    limits,
                    None if waiter is None else waiter.queue,
                    tuning,
                    first,
                )
            )
        )
        first = None
        attempted = True
        verdict, final, pause, effects = requester._attempt_outcome(request, attempt, command_reply)
        for effect in effects:  # noqa: UP028 - it may be sent replies
            yield effect
        if final or waiter is None or (now := clock.now()) >= give_up:
            break
        if uncontended:
            uncontended = False
            attempt = yield Wait(waiter, give_up)
            continue
        if not attempt.address and not request.subscribed:
            request.subscribed = True
            # a change before the subscription sent no message
            pause = 0.0 if (yield Subscribe(waiter.channel, min(tuning.subscribe_timeout, give_up - now))) else pause
        position, request.position = request.position, None  # passed on once: a wake-up may come between
        attempt = yield Wait(waiter, give_up, min(tuning.max_poll_interval, pause), position)
    if waiter is not None:
        if not (uncontended and requester.performer.end_uncontended(waiter.lock_id, None) is waiter):
            yield LeaveQueue(waiter, min(tuning.max_poll_interval, pause) if final else None, request.position)
        request.waiter = None
        if not attempted and waiter.queue is not None and waiter.queue.failure is not None:
            # the head of the queue found the store down
            raise LockBackendError(waiter.queue.failure, transient=True)
    request.waited = clock.now() - begin
    return verdict

"""Waiting for one's turn to ask the store: the queue of this process, and the line of processes in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

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

_UNQUEUED_ATTEMPT = Attempt()


Outcome: TypeAlias = "tuple[V, bool, float, Iterable[Effect[Any]]]"
"""What an attempt came to: the verdict; whether that settles it, so that there is no need to ask again; for how many
seconds whoever asks next may sleep, unless he is woken; and what is to be done about it at once."""


class Requester(Protocol[W_contra, V_co]):
    """What asks the store for something, and makes sense of its answers."""

    @property
    def performer(self) -> Performer: ...

    def _question(self, wish: W_contra, attempt: Attempt) -> Command[Any]: ...

    def _outcome(self, wish: W_contra, attempt: Attempt, answer: CommandReply) -> Outcome[V_co]: ...


def wait_loop(
    asker: Requester[W_contra, V], wish: W_contra, waiter: Waiter | None, verdict: V, patience: RetryLimits
) -> Program[V]:
    """Ask whenever it is our turn, until that settles it or the wish's wait is over; without a wait once. Returns the
    last verdict, or the one given if it was never our turn: the head of the queue has asked for the whole process.

    Where all is calm the first question is asked without queueing up: as a rule there is nothing to wait for.

    If it fails, wherever an exception strikes, whoever has the wish gives up what it holds."""
    tuning = asker.performer.tuning
    begin = clock.now()
    give_up = begin + wish.wait
    wish.waiter = waiter
    uncontended = waiter is not None and asker.performer.uncontended(waiter)
    asked = settled = False
    rest = 0.0
    attempt: Attempt | None = _UNQUEUED_ATTEMPT
    if waiter is not None and not uncontended:
        attempt = yield Wait(waiter, give_up)
    while attempt is not None:
        wish.position, wish.sent = None, attempt.taken is None
        answer = (
            attempt.taken.go_on()
            if attempt.taken is not None
            else (
                yield from retry_command(
                    asker._question(wish, attempt), give_up, patience, None if waiter is None else waiter.queue, tuning
                )
            )
        )
        asked = True
        verdict, settled, rest, then = asker._outcome(wish, attempt, answer)
        for effect in then:  # noqa: UP028 - it may be sent replies
            yield effect
        if settled or waiter is None or (now := clock.now()) >= give_up:
            break
        if uncontended:
            uncontended = False
            attempt = yield Wait(waiter, give_up)
            continue
        if not attempt.address and not wish.listened:
            wish.listened = True
            # whoever changed it meanwhile couldn't tell us
            rest = 0.0 if (yield Subscribe(waiter.channel, min(tuning.subscribe_timeout, give_up - now))) else rest
        position, wish.position = wish.position, None  # told once: a wake-up may come between
        attempt = yield Wait(waiter, give_up, min(tuning.max_poll_interval, rest), position)
    if waiter is not None:
        if not (uncontended and asker.performer.end_uncontended(waiter)):
            yield LeaveQueue(waiter, min(tuning.max_poll_interval, rest) if settled else None, wish.position)
        wish.waiter = None
        if not asked and waiter.queue is not None and waiter.queue.failure is not None:
            # it never was our turn, and whoever's it was found the store down
            raise LockBackendError(waiter.queue.failure, transient=True)
    wish.waited = clock.now() - begin
    return verdict

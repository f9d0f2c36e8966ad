"""Waiting for one's turn to ask the store: the queue of this process, and the line of processes in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ...core import clock
from ...core.effects import Attempt, Command, Effect, LeaveQueue, Performer, Program, Subscribe, Wait, Waiter
from ...core.errors import LockBackendError
from .retry import retry_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .requests import WaitRequest
    from .retry import Answer, RetryLimits

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
W_contra = TypeVar("W_contra", bound="WaitRequest", contravariant=True)

_ONCE = Attempt()


Outcome: TypeAlias = "tuple[V, bool, float, Iterable[Effect[Any]]]"
"""What an attempt came to: the verdict; whether that settles it, so that there is no need to ask again; for how many
seconds whoever asks next may sleep, unless he is woken; and what is to be done about it at once."""


class Asker(Protocol[W_contra, V_co]):
    """What asks the store for something, and makes sense of its answers."""

    @property
    def world(self) -> Performer: ...

    def _question(self, wish: W_contra, turn: Attempt) -> Command[Any]: ...

    def _outcome(self, wish: W_contra, turn: Attempt, answer: Answer) -> Outcome[V_co]: ...


def wait_loop(
    asker: Asker[W_contra, V], wish: W_contra, seat: Waiter | None, verdict: V, patience: RetryLimits
) -> Program[V]:
    """Ask whenever it is our turn, until that settles it or the wish's wait is over; without a wait once. Returns the
    last verdict, or the one given if it was never our turn: the head of the queue has asked for the whole process.

    Where all is calm the first question is asked without queueing up: as a rule there is nothing to wait for.

    If it fails, wherever an exception strikes, whoever has the wish gives up what it holds."""
    tuning = asker.world.tuning
    begin = clock.now()
    give_up = begin + wish.wait
    wish.seat = seat
    calm = seat is not None and asker.world.calm(seat)
    asked = settled = False
    rest = 0.0
    turn: Attempt | None = _ONCE
    if seat is not None and not calm:
        turn = yield Wait(seat, give_up)
    while turn is not None:
        wish.standing, wish.sent = None, turn.taken is None
        answer = (
            turn.taken.go_on()
            if turn.taken is not None
            else (
                yield from retry_command(
                    asker._question(wish, turn), give_up, patience, None if seat is None else seat.queue, tuning
                )
            )
        )
        asked = True
        verdict, settled, rest, then = asker._outcome(wish, turn, answer)
        for effect in then:  # noqa: UP028 - it may be sent replies
            yield effect
        if settled or seat is None or (now := clock.now()) >= give_up:
            break
        if calm:
            calm = False
            turn = yield Wait(seat, give_up)
            continue
        if not turn.address and not wish.listened:
            wish.listened = True
            # whoever changed it meanwhile couldn't tell us
            rest = 0.0 if (yield Subscribe(seat.channel, min(tuning.subscribe_timeout, give_up - now))) else rest
        standing, wish.standing = wish.standing, None  # told once: a wake-up may come between
        turn = yield Wait(seat, give_up, min(tuning.max_poll_interval, rest), standing)
    if seat is not None:
        if not (calm and asker.world.cool(seat)):
            yield LeaveQueue(seat, min(tuning.max_poll_interval, rest) if settled else None, wish.standing)
        wish.seat = None
        if not asked and seat.queue is not None and seat.queue.failure is not None:
            # it never was our turn, and whoever's it was found the store down
            raise LockBackendError(seat.queue.failure, transient=True)
    wish.waited = clock.now() - begin
    return verdict

"""Waiting for one's turn to ask the store: the queue of this process, and the line of processes in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ..core import constants
from ..core.constants import SOCKET_TIMEOUT
from ..core.effects import Join, Leave, Listen, Now, Program, Seat, Turn, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from .wishes import Wish

V = TypeVar("V")


class Outcome(NamedTuple, Generic[V]):
    """What an attempt came to. ``settled``: no need to ask again. ``rest``: whoever asks next may sleep so many seconds,
    unless he is woken."""

    verdict: V
    settled: bool
    rest: float


def kept() -> int:
    """For how many milliseconds a process that isn't heard of any more stays in line."""
    return round(2000 * constants.CAP)


def waiting(
    wish: Wish, seat: Seat | None, give_up: float, attempt: Callable[[Turn], Program[Outcome[V]]], verdict: V
) -> Program[V]:
    """Attempt whenever it is our turn, until that settles it or time is up; without a seat once. Returns the last
    verdict, or the one given if it was never our turn: the head of the queue has asked for the whole process."""
    if seat is None:
        return (yield from attempt(Turn())).verdict
    wish.seat = seat
    try:
        outcome = yield from _asking_in_turn(wish, seat, give_up, attempt, verdict)
    except GeneratorExit:  # abandoned: whoever has the wish clears away
        raise
    except BaseException:
        yield from Leave(seat, 0.0)  # the next one asks at once: a wake-up may have been spent
        wish.seat = None
        raise
    yield from Leave(seat, min(constants.CAP, outcome.rest) if outcome.settled else None, wish.standing)
    wish.seat = None
    return outcome.verdict


def _asking_in_turn(
    wish: Wish, seat: Seat, give_up: float, attempt: Callable[[Turn], Program[Outcome[V]]], verdict: V
) -> Program[Outcome[V]]:
    outcome = Outcome(verdict, False, 0.0)
    yield from Join(seat)
    turn = yield from Wait(seat, give_up)
    while turn is not None:
        wish.standing = None
        outcome = yield from attempt(turn)
        if outcome.settled:
            break
        now = yield from Now()
        if now >= give_up:
            break
        rest = min(constants.CAP, outcome.rest)
        if not turn.address and not wish.listened:
            wish.listened = True
            if (yield from Listen(seat.channel, min(SOCKET_TIMEOUT, give_up - now))):
                rest = 0.0  # whoever changed it meanwhile couldn't tell us
        standing, wish.standing = wish.standing, None  # told once: a wake-up may come between
        turn = yield from Wait(seat, give_up, rest, standing)
    return outcome

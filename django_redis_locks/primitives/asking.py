"""Asking the store until it answers: the retry loop, as a part of programs.

It is ours because only who repeats a request knows that an earlier copy of it went unanswered, and every step of a
lock means something else then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core.constants import FIRST_RETRY, TROUBLE
from ..core.effects import Command, Now, Pause, Program
from ..core.errors import LockBackendError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """A reply, when the request it answers was sent, and whether an earlier copy went unanswered."""

    reply: R
    sent: float
    unanswered: bool


def asking(command: Command[R], until: float) -> Program[Answer[R]]:
    """Send a command until it is answered, but not after ``until`` on the engine's clock; at least once.

    A connection that turns out to have been closed while it lay idle is not the store's failure: it is tried again at
    once, whatever ``until``.

    Raises:
        LockBackendError: the store refuses, or no attempt was answered; ``unanswered`` says whether one may have been
            carried out.
    """
    unanswered = False
    pause = FIRST_RETRY
    begin: float | None = None
    while True:
        sent = yield from Now()
        try:
            reply = yield from command
        except LockBackendError as failure:
            unanswered = unanswered or failure.unanswered
            failure.unanswered = unanswered
            if failure.stale:
                continue
            now = yield from Now()
            begin = sent if begin is None else begin
            left = min(until, begin + TROUBLE) - now
            if not failure.passing or left <= 0:
                raise
            yield from Pause(min(pause, left))
            pause = min(2 * pause, 1.0)
        else:
            return Answer(reply, sent, unanswered)

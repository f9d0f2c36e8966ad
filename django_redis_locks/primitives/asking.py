"""Asking the store until it answers: the retry loop, as a part of programs.

It is ours because only who repeats a request knows that an earlier copy of it went unanswered, and every step of a
lock means something else then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core.constants import FIRST_RETRY, TROUBLE
from ..core.effects import Command, Now, Pause, Program, Trouble
from ..core.errors import LockBackendError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """A reply, when the request it answers was sent, and whether an earlier copy went unanswered."""

    reply: R
    sent: float
    unanswered: bool


def asking(command: Command[R], until: float, trouble: Trouble | None = None) -> Program[Answer[R]]:
    """Send a command until it is answered, but not after ``until`` on the engine's clock, nor for longer than a store may
    be in ``trouble``; at least once.

    A connection that turns out to have been closed while it lay idle is not the store's failure: it is tried again at
    once, whatever ``until``.

    Raises:
        LockBackendError: the store refuses, or no attempt was answered; ``unanswered`` says whether one may have been
            carried out.
    """
    trouble = trouble or Trouble()
    unanswered = False
    pause = FIRST_RETRY
    while True:
        sent = yield from Now()
        try:
            reply = yield from command
        except LockBackendError as failure:
            unanswered = unanswered or failure.unanswered
            failure.unanswered = unanswered
            if failure.stale:
                continue
            if not failure.passing:
                raise
            now = yield from Now()
            left = min(until, trouble.note(failure, sent) + TROUBLE) - now
            if left <= 0:
                raise
            yield from Pause(min(pause, left))
            pause = min(2 * pause, 1.0)
        else:
            trouble.failure = None
            return Answer(reply, sent, unanswered)

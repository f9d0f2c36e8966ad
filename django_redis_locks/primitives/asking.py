"""Asking the store until it answers: the retry loop, as a part of programs.

It is ours because only who repeats a request knows that an earlier copy of it went unanswered, and every step of a
lock means something else then.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..core import clock
from ..core.effects import Command, Pause, Program, Trouble
from ..core.errors import LockBackendError
from ..core.tuning import DEFAULT, Tuning

Answer: TypeAlias = tuple[Any, float, bool]
"""A reply, when the request it answers was sent, and whether an earlier copy went unanswered."""


def asking(
    command: Command[Any], until: float, trouble: Trouble | None = None, tuning: Tuning = DEFAULT
) -> Program[Answer]:
    """Send a command until it is answered, but not after ``until`` on the engine's clock, nor for longer than a store may
    be in ``trouble``; at least once.

    A connection that turns out to have been closed while it lay idle is not the store's failure: it is tried again at
    once, whatever ``until``.

    Raises:
        LockBackendError: the store refuses, or no attempt was answered; ``unanswered`` says whether one may have been
            carried out.
    """
    unanswered = False
    pause = tuning.first_retry
    while True:
        sent = clock.now()
        try:
            reply = yield command
        except LockBackendError as failure:
            unanswered = unanswered or failure.unanswered
            failure.unanswered = unanswered
            if failure.stale:
                continue
            if not failure.passing:
                raise
            trouble = trouble or Trouble()
            left = min(until, trouble.note(failure, sent) + tuning.down_after) - clock.now()
            if left <= 0:
                raise
            yield Pause(min(pause, left))
            pause = min(2 * pause, tuning.longest_retry)
        else:
            if trouble is not None:
                trouble.failure = None
            return reply, sent, unanswered

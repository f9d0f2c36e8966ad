"""Retries one command until the store replies: the retry loop, as a part of programs.

The client library's retries are not used: the result of a lock's step depends on whether an earlier copy of the request
went unanswered, which only the retry loop knows.

All commands follow one rule. A store that *refuses temporarily* is retried until the caller's deadline. A store that
*can't be reached* is retried for ``BACKEND_WAIT`` seconds after the first failure, and not after that deadline. Then it
counts as down, and the commands of all callers of the process fail at once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ...core import clock
from ...core.commands import Command, Program
from ...core.effects import ReportUnreachable, SendCommands, Sleep
from ...core.errors import LockBackendError
from ...core.queue_values import QueueOutage
from ...core.tuning import BACKEND_WAIT, DEFAULT, Tuning

if TYPE_CHECKING:
    from collections.abc import Sequence

CommandReply: TypeAlias = tuple[Any, float, bool]
"""The parsed reply, the time its request was sent, and whether an earlier copy went unanswered."""


class FirstReply:
    """The reply to a command that was sent before its program began.

    Args:
        sent: when it was sent.
        reply: the raw reply, or the ``LockBackendError``.
    """

    __slots__ = ("_reply", "sent")

    def __init__(self, sent: float, reply: Any) -> None:
        self.sent = sent
        self._reply = reply

    def take(self, command: Command[Any]) -> Any:
        """Return the parsed reply.

        Raises:
            LockBackendError: there is none, or it isn't one to this command.
        """
        reply, self._reply = self._reply, None  # an error and a frame that refer to each other stay in memory
        if isinstance(reply, LockBackendError):
            try:
                raise reply
            finally:
                del reply
        return command.read(reply)


class RetryLimits(NamedTuple):
    """For how many seconds after its first failure a command is retried.

    Attributes:
        unreachable: while the server can't be reached.
        refused: while it refuses temporarily.
    """

    unreachable: float
    refused: float


DEFAULT_LIMITS: Final = RetryLimits(BACKEND_WAIT, BACKEND_WAIT)


def retry_command(
    command: Command[Any],
    until: float = inf,
    limits: RetryLimits = DEFAULT_LIMITS,
    outage: QueueOutage | None = None,
    tuning: Tuning = DEFAULT,
    first: FirstReply | None = None,
) -> Program[CommandReply]:
    """Send a command until it is answered: not after ``until`` on the engine's clock, nor beyond one's ``limits``; at
    least once, unless it was sent already (``first``). ``outage`` is given the last failure.

    A pooled connection that was closed while idle is no failure of the store: the command is sent again at once, even
    after ``until``.

    Raises:
        LockBackendError: the store refuses, or no attempt was answered; ``outcome_unknown`` says whether one may have
            been carried out.
    """
    outage = outage or QueueOutage()
    outcome_unknown = False
    pause = tuning.min_retry_delay
    first_unreached = first_refused = inf
    while True:
        sent = clock.now() if first is None else first.sent
        try:
            if first is None:
                reply = yield command
            else:
                reply = first.take(command)
        except LockBackendError as failure:
            first = None
            outcome_unknown = outcome_unknown or failure.outcome_unknown
            failure.outcome_unknown = outcome_unknown
            if failure.on_reused_connection:
                continue
            if not failure.transient:
                raise
            text = str(failure.args[0])
            outage.failure = text
            now = clock.now()
            if failure.unreachable:
                first_unreached = min(first_unreached, now)
                left = yield ReportUnreachable(sent, text, limits.unreachable)
                left = min(left, first_unreached + limits.unreachable - now)
            else:
                first_refused = min(first_refused, now)
                left = first_refused + limits.refused - now
            left = min(left, until - now)
            if left <= 0:
                raise
            yield Sleep(min(pause, left))
            pause = min(2 * pause, tuning.max_failover_delay if failure.awaits_failover else tuning.max_retry_delay)
        else:
            outage.failure = None
            return reply, sent, outcome_unknown


def retry_commands(
    commands: Sequence[Command[Any]], until: float = inf, unreachable: list[str] | None = None
) -> Program[list[Any]]:
    """Send independent commands together, and repeat those that fail, not after ``until``. Return the value of each.

    Args:
        unreachable: gets the reasons if only a part of the store can't be reached. The values of its commands are None
            then, and they aren't repeated: their servers may be away for long.

    Raises:
        LockBackendError: the store refuses, or an attempt wasn't answered.
    """
    if not commands:
        return []
    if len(commands) == 1:  # without a list it costs less
        return [(yield from retry_command(commands[0], until))[0]]
    sent = clock.now()
    values = yield SendCommands(commands)
    if all(isinstance(value, LockBackendError) for value in values):
        unreachable = None  # the whole store
    for number, value in enumerate(values):
        if isinstance(value, LockBackendError):
            latest = until if unreachable is None or not _is_away(value) else sent
            try:
                values[number] = (yield from retry_command(commands[number], latest, first=FirstReply(sent, value)))[0]
            except LockBackendError as failure:
                if unreachable is None or not _is_away(failure):
                    raise
                values[number] = None
                if (reason := str(failure.args[0])) not in unreachable:
                    unreachable.append(reason)
        elif isinstance(value, BaseException):
            raise value
    return values  # type: ignore[no-any-return]


def _is_away(failure: LockBackendError) -> bool:
    """Return whether a command failed because its server can't be reached, or isn't replaced yet."""
    return failure.unreachable or failure.awaits_failover

"""The commands of a latch, the parsers of their replies, and what a reply says to a waiter.

A latch is described by its *generation*, a fence: every ``try_set`` that succeeds starts the next one. A generation can
only follow one that was counted down to 0, unless there was no latch. So a waiter that finds a later generation than its
own knows whether its own was opened: the store keeps the first generation since which each was.

Every request to change a latch has a nonce, which the store keeps for a while, whether the request changed something or not.
So it recognizes the copies of a request: a latch is counted down at most once by each call, and a late copy neither counts on
this generation or the next one, nor sets the latch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from ...core import forks, tokens
from ...core.commands import Command
from ...core.keys import participants_of, requests_of
from ...core.queue_values import Attempt, QueuePosition
from ...core.replies import parse_array, parse_bool, parse_int, parse_text
from ...core.steps.latches import CountDown, GetLatch, LatchWaiter, SetLatch
from .requests import NOT_QUEUED, WaitRequest
from .watched_value import WatchedValue

LATE_COPIES: Final = 60.0
"""For how many seconds after its last possible repetition the store recognizes a request: a copy may be late, or the
process may have been stopped."""


class Verdict(Enum):
    """What became of the latch that a waiter found first."""

    CLOSED = "closed"
    OPEN = "open"
    ENDED = "ended"
    """It isn't there any more, and was never counted down to 0."""


class LatchReply(NamedTuple):
    """A latch as it was at one moment; all numbers are 0 if there was none.

    Attributes:
        left: what was left of its count.
        generation: its generation.
        first: the generation since which each was counted down to 0.
        seconds_left: seconds until it ends if it isn't changed.
        position: the position of the local queue in the store's wait queue.
    """

    left: int
    generation: int
    first: int
    seconds_left: float
    position: QueuePosition = NOT_QUEUED

    def verdict(self, known: int) -> Verdict:
        """Return what became of a generation that existed."""
        if known == self.generation:
            return Verdict.CLOSED if self.left else Verdict.OPEN
        return Verdict.OPEN if self.first <= known < self.generation else Verdict.ENDED


class LatchRequest(WaitRequest):
    """A request to wait until a latch is open.

    Attributes:
        known: the generation that the caller found first; None before that.
    """

    __slots__ = ("known",)

    def __init__(self, wait: float, loop: object) -> None:
        super().__init__(wait, loop)
        self.known: int | None = None


@dataclass(slots=True, unsafe_hash=True)
class LatchCommands(WatchedValue):
    """The commands of the latch under one key. Immutable."""

    def _get_command(self, known: int = 0, attempt: Attempt | None = None) -> Command[LatchReply]:
        waiter: LatchWaiter | None = None
        if attempt is not None:
            waiter = LatchWaiter(
                known,
                attempt.address,
                attempt.enqueued_at,
                int(attempt.others_behind),
                self.performer.tuning.waiter_ttl,
            )
        return Command("latch/get", self.keys[:2], GetLatch(waiter), self._parse_get)

    def _set_command(self, size: int, lifetime: int) -> Command[bool]:
        keys = self.keys
        args = SetLatch(_mint_nonce(), size, lifetime, self._nonce_ttl)
        return Command("latch/set", (keys.lock, keys.fence, *self._own_keys), args, self._parse_set)

    def _count_down_command(self, participant: str) -> Command[int]:
        args = CountDown(_mint_nonce(), participant, self._nonce_ttl)
        return Command("latch/count_down", (*self.keys[:2], *self._own_keys), args, self._parse_count_down)

    @property
    def _own_keys(self) -> tuple[str, str]:
        """The keys that only a latch has: its participants, and its recent requests."""
        return participants_of(self.keys.lock), requests_of(self.keys.lock)

    @property
    def _nonce_ttl(self) -> int:
        """The milliseconds for which the store recognizes the copies of a request. It is repeated for as long as the
        server can't be reached, and then for as long as it refuses."""
        limits = self.options.call_limits
        return round(1000 * (limits.unreachable + limits.refused + LATE_COPIES))

    def _parse_set(self, reply: Any) -> bool:
        return parse_bool(self._checked(reply))

    def _parse_count_down(self, reply: Any) -> int:
        return parse_int(self._checked(reply))

    def _parse_get(self, reply: Any) -> LatchReply:
        """Parse ``[left, generation, first generation, ms left, arrival]`` or ``[-1, what the key holds]``."""
        if isinstance(reply, LatchReply):  # parsed by another waiter of the queue
            return reply
        left, generation, first, ms_left, enqueued_at = map(parse_int, parse_array(self._checked(reply)))
        return LatchReply(left, generation, first, ms_left / 1000, QueuePosition(enqueued_at))

    def _checked(self, reply: Any) -> Any:
        """Return a reply.

        Raises:
            LockKeyError: it says that the key holds another value.
        """
        if isinstance(reply, list) and reply[0] == -1:
            raise self._foreign_value_error("latch", parse_text(reply[1]))
        return reply


def _mint_nonce() -> str:
    forks.pid()  # a forked child has nonces of its own
    return tokens.mint_token()

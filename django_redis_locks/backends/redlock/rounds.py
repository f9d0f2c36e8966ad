"""Rounds: one request to each member at once. A round ends when enough of the replies have arrived; later ones are
handled when they arrive."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from typing import TypeAlias

    from .members import Request
    from .quorum import Quorum

UNANSWERED: Final = type("Unanswered", (), {"__repr__": lambda self: "UNANSWERED"})()
"""Stands for a reply that hasn't arrived."""

NOT_ASKED: Final = type("NotAsked", (), {"__repr__": lambda self: "NOT_ASKED"})()
"""Stands for the reply of a member that isn't asked in this round."""

GRACE: Final = 0.001
"""Seconds for which a caller waits for the other replies after the majority's: a request that follows the late ones takes
longer."""

Replies: TypeAlias = "Sequence[Any]"
"""For each member its raw reply, its ``LockBackendError``, ``UNANSWERED`` or ``NOT_ASKED``."""

Merging: TypeAlias = "Generator[Ask, Replies, Any]"
"""A program that yields rounds and returns the raw reply of the majority."""


@dataclass(slots=True)
class Ask:
    """The requests of one round.

    Attributes:
        requests: for each member its request; None if it isn't asked.
        enough: returns whether these replies are sufficient.
        token: the token of a hold: each member gets its requests in order; "" for requests without an order.
        late: called with the number of a member and a reply that arrives after the end of the round. It returns a request
            to send to that member, or None.
        still_wanted: called immediately before a request is sent. If it returns False, nothing is sent.
        releases: the seconds for which the request is repeated to a member that doesn't answer; 0 for no repetition.
        least: the number of replies without an error before which ``enough`` isn't asked.
        packed: a request, and its bytes.
    """

    requests: list[Request | None]
    enough: Callable[[Replies], bool]
    token: str = ""
    late: Callable[[int, Any], Request | None] | None = None
    still_wanted: Callable[[], bool] | None = None
    releases: float = 0.0
    least: int = 0
    packed: tuple[Request, bytes] | None = None


class Round:
    """The replies to an ``Ask``, from several threads or tasks. ``on_enough`` is called once, in any thread."""

    def __init__(self, ask: Ask, on_enough: Callable[[], object]) -> None:
        self._ask = ask
        self._on_enough = on_enough
        self._mutex = threading.Lock()
        self._replies = [NOT_ASKED if request is None else UNANSWERED for request in ask.requests]
        self._open = self._replies.count(UNANSWERED)
        self._left = ask.least
        self._closed = self._ended = False

    def record(self, number: int, reply: Any) -> Request | None:
        """Record the reply of a member. If the round has ended, return what is to be sent to that member then."""
        with self._mutex:
            if self._closed:
                return self._ask.late(number, reply) if self._ask.late is not None else None
            if self._replies[number] is UNANSWERED:
                self._open -= 1
                self._left -= not isinstance(reply, LockBackendError)
            self._replies[number] = reply
            if self._ended or (self._open and (self._left > 0 or not self._ask.enough(self._replies))):
                return None
            self._ended = True
        self._on_enough()
        return None

    def check(self) -> None:
        """End a round that asks no member."""
        with self._mutex:
            if self._ended or self._open:
                return
            self._ended = True
        self._on_enough()

    @property
    def closed(self) -> bool:
        """Whether its caller has continued."""
        return self._closed

    def close(self) -> Replies:
        """End the round and return its replies."""
        with self._mutex:
            self._closed = True
            return list(self._replies)


def raw(reply: Any) -> Any:
    """Return a reply as it is."""
    return reply


def requests_to(quorum: Quorum, request: Request, members: Iterable[int] | None = None) -> list[Request | None]:
    """Return the requests of a round: the same one for these members, or for all."""
    chosen = range(len(quorum.members)) if members is None else set(members)
    return [request if number in chosen else None for number in range(len(quorum.members))]


def all_answered(replies: Replies) -> bool:
    """Return whether no reply is missing."""
    return UNANSWERED not in replies


def is_answer(reply: Any) -> bool:
    """Return whether a member has replied, without an error."""
    return reply is not UNANSWERED and reply is not NOT_ASKED and not isinstance(reply, LockBackendError)


def answers(replies: Replies) -> list[Any]:
    """Return the replies that aren't errors."""
    return [reply for reply in replies if is_answer(reply)]

"""Sends the requests of a round to the members, each token's in order, and handles the replies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError
from .votes import majority_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..redis.direct import BegunRequest
    from .members import Member, Request
    from .rounds import Ask, Round
    from .workers import Starter

NOT_SENT: Final = LockBackendError("the request isn't wanted any more")
UNANSWERED_IN_TIME: Final = LockBackendError("no answer in time", outcome_unknown=True, transient=True)
INTERRUPTED: Final = LockBackendError("the caller was interrupted", outcome_unknown=True, transient=True)

PATIENCE: Final = 4
"""The timeouts for which a request waits for an earlier one of its token. That fails earlier, unless its thread or event loop
doesn't run."""


class Sending:
    """The request of a round to one member.

    Attributes:
        number: the number of the member.
        member: the member.
        ask: what the round asks.
        round: the round.
        request: its commands.
        start_later: sends it after an earlier request of the same token.
        begun: the sent request, if the caller reads the reply; else None.
        left: whether something else than the caller sees to its reply.
    """

    __slots__ = ("ask", "begun", "left", "member", "number", "request", "round", "start_later")

    def __init__(self, number: int, member: Member, ask: Ask, round_: Round) -> None:
        self.number = number
        self.member = member
        self.ask = ask
        self.round = round_
        self.request: Request = ask.requests[number] or ()
        self.start_later: Callable[[Sending], object] | None = None
        self.begun: BegunRequest | None = None
        self.left = False

    @property
    def data(self) -> bytes:
        """The bytes of the request. Members with the same request share them."""
        ask = self.ask
        if ask.packed is None or ask.packed[0] is not self.request:
            direct = self.member.direct
            ask.packed = self.request, b"" if direct is None else direct.pack(self.request)
        return ask.packed[1]

    def wanted(self) -> bool:
        """Return whether the request is to be sent now."""
        return self.ask.still_wanted is None or self.ask.still_wanted()


class Dispatcher:
    """What rounds of threads and of tasks have in common.

    Args:
        members: the servers.
        starter: runs what is sent in the background.
        timeout: seconds after which a member counts as silent.
    """

    def __init__(self, members: Sequence[Member], starter: Starter, timeout: float) -> None:
        self._members = members
        self._starter = starter
        self._timeout = timeout

    def sendings(self, ask: Ask, round_: Round) -> list[Sending]:
        """Return the requests to send, and record the failures of members that are known to be down. These are asked
        only if there is no majority without them."""
        members = self._members
        wanted = [number for number, request in enumerate(ask.requests) if request is not None]
        up = [number for number in wanted if members[number].failure is None or members[number].may_be_asked()]
        if len(up) < len(wanted):
            if len(up) < majority_of(len(members)):
                up = wanted
            for number in set(wanted) - set(up):
                self._settle(Sending(number, members[number], ask, round_), members[number].known_failure())
        return [Sending(number, members[number], ask, round_) for number in up]

    def send(
        self, sending: Sending, start: Callable[[Sending], object], start_later: Callable[[Sending], object]
    ) -> None:
        """Call ``start``, or after the earlier requests of the same token ``start_later``. ``answer`` follows in both
        cases."""
        token = sending.ask.token
        if token:
            sending.start_later = start_later
            before = sending.member.begin_in_order(token, sending)
            if before is not None:
                sending.left = True
                self._limit(before)
                return
        start(sending)

    def _limit(self, sending: Sending) -> None:
        """Limit the time for which later requests of the token wait for this one."""
        self._starter.start_later(PATIENCE * self._timeout, partial(self._overtake, sending))

    def _overtake(self, sending: Sending) -> None:
        """Start the next request of a token although this one has no reply: its event loop may be blocked, or stopped."""
        if sending.member.is_under_way(sending.ask.token, sending):
            self.answer(sending, UNANSWERED_IN_TIME)

    def _send_next(self, sending: Sending) -> None:
        assert sending.start_later is not None  # noqa: S101 - it waited in line
        if not sending.member.may_be_asked():
            self.answer(sending, sending.member.known_failure())
        elif sending.round.closed and not sending.ask.releases:
            self.answer(sending, NOT_SENT)
        else:
            self._limit(sending)
            sending.start_later(sending)

    def start_in_thread(self, sending: Sending) -> None:
        """Send a request in a thread, which waits for the reply."""
        self._starter.start(partial(self._call, sending))
        sending.left = True

    def _call(self, sending: Sending) -> None:
        self.answer(sending, sending.member.call(sending.request) if sending.wanted() else NOT_SENT)

    def answer(self, sending: Sending, reply: Any) -> None:
        """Handle a reply, and start the next request of the token. It may be repeated, after an interruption."""
        if sending.ask.token and (following := sending.member.answered(sending.ask.token, sending)) is not None:
            self._send_next(following)
        self._settle(sending, reply)
        sending.left = True

    def call_batch(self, batch: Sequence[Sending], timeout: float) -> None:
        """Send the requests of several rounds to one member in one write, in no order."""
        replies = batch[0].member.call_batch([sending.request for sending in batch], timeout)
        for sending, reply in zip(batch, replies, strict=True):
            self._settle(sending, reply)

    def _settle(self, sending: Sending, reply: Any) -> None:
        member, ask = sending.member, sending.ask
        if ask.releases:
            late_copy = member.may_have_late_copy(ask.token)
            if late_copy or isinstance(reply, LockBackendError):
                member.release_later(sending.request, ask.releases)
        more = sending.round.record(sending.number, reply)
        if more is not None:
            self._starter.start(partial(member.call, more))

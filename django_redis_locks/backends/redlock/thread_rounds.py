"""Rounds of synchronous callers. The caller itself sends to all members and reads the replies as they arrive: to hand each of
them to a thread takes longer than a round trip. Threads do what would block it: they open connections, and wait for the
members that are slower than the majority."""

from __future__ import annotations

import select
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from ...core.clock import system_now as now
from ..redis.direct import AGAIN
from .dispatch import INTERRUPTED, NOT_SENT, Dispatcher, Sending
from .rounds import Round

if TYPE_CHECKING:
    from ..redis.direct import BegunRequest
    from .members import Member
    from .rounds import Ask, Replies
    from .workers import Starter

GRACE: Final = 0.001
"""Seconds for which the caller waits for the other replies after the majority's, rather than leave them to threads."""

SLICE: Final = 0.005
"""Seconds after which a caller that waits for data looks for the replies that threads have received."""


class _Own:
    """A request that the caller sends. Whatever interrupts the caller, a thread sees to the reply.

    Attributes:
        begun: its reply is to be read; None before it is sent.
    """

    __slots__ = ("begun", "sending")

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.begun: BegunRequest | None = None


class ThreadRounds:
    """Carries out rounds for synchronous callers.

    Args:
        dispatcher: what rounds have in common.
        starter: runs what is left to threads.
        timeout: seconds after which a member counts as silent.
    """

    def __init__(self, dispatcher: Dispatcher, starter: Starter, timeout: float) -> None:
        self._dispatcher = dispatcher
        self._starter = starter
        self._timeout = timeout

    def ask(self, ask: Ask) -> Replies:
        """Carry out one round."""
        done = threading.Lock()
        done.acquire()
        round_ = Round(ask, done.release)
        own: list[_Own] = []
        try:
            own += map(_Own, self._dispatcher.sendings(ask, round_))
            round_.check()
            began = now()
            for each in own.copy():
                if not self._dispatcher.send(
                    each.sending, partial(self._begin, own, each), self._dispatcher.start_in_thread
                ):
                    own.remove(each)
            if own:
                self._read(own, done, began)
            if done.locked():
                self._leave(own)
                self._starter.wait(done, 4 * self._timeout + 1.0)
        finally:
            replies = round_.close()
            self._leave(own)
        return replies

    def _begin(self, own: list[_Own], each: _Own, sending: Sending) -> None:
        direct = sending.member.direct
        if not sending.wanted():
            self._dispatcher.answer(sending, NOT_SENT)
        elif direct is not None and (begun := direct.begin(sending.data, len(sending.request))) is not None:
            each.begun = begun
            return
        else:
            self._dispatcher.start_in_thread(sending)
        own.remove(each)

    def _read(self, own: list[_Own], done: threading.Lock, began: float) -> None:
        """Read the replies until the round has ended, and for a moment longer. What has been read is removed."""
        poller = select.poll()
        by_file = {}
        for each in own:
            assert each.begun is not None  # noqa: S101 - those that weren't sent are removed
            by_file[each.begun.fileno] = each
            poller.register(each.begun.fileno, select.POLLIN)
        until, ended = began + self._timeout, False
        while by_file and (left := until - now()) > 0:
            for fileno, _ in poller.poll(1000 * min(left, SLICE)):
                each = by_file[fileno]
                if self._receive(each, wait=False):
                    own.remove(each)
                    del by_file[fileno]
                    poller.unregister(fileno)
            if not ended and not done.locked():
                ended, until = True, now() + GRACE

    def _receive(self, each: _Own, *, wait: bool) -> bool:
        """Read what has arrived. Return whether the reply is complete, and handled."""
        assert each.begun is not None  # noqa: S101
        replies = each.begun.receive(wait=wait)
        if replies is None:
            return False
        if AGAIN in replies:
            self._dispatcher.start_in_thread(each.sending)
        else:
            self._dispatcher.answer(each.sending, each.sending.member.recorded(replies))
        return True

    def _leave(self, own: list[_Own]) -> None:
        """Leave to threads what the caller hasn't read."""
        while own:
            self._starter.start(partial(self._finish, own[-1]))
            own.pop()

    def _finish(self, each: _Own) -> None:
        """Wait for a reply that the caller hasn't read."""
        if each.begun is None:  # it was interrupted while it sent the request
            self._dispatcher.answer(each.sending, INTERRUPTED)
        else:
            self._receive(each, wait=True)

    def ask_many(self, asks: list[Ask], timeout: float) -> list[Replies]:
        """Carry out rounds at the same time, those of one member in one write."""
        done = threading.Semaphore(0)
        rounds = [Round(ask, done.release) for ask in asks]
        try:
            batches: dict[Member, list[Sending]] = {}
            for ask, round_ in zip(asks, rounds, strict=True):
                for sending in self._dispatcher.sendings(ask, round_):
                    if ask.token and (sending.member.has_unanswered(ask.token) or not ask.releases):
                        in_thread = self._dispatcher.start_in_thread
                        self._dispatcher.send(sending, in_thread, in_thread)
                    else:
                        batches.setdefault(sending.member, []).append(sending)
                round_.check()
            for batch in batches.values():
                self._starter.start(partial(self._dispatcher.call_batch, batch, timeout))
            until = now() + 4 * max(timeout, self._timeout) + 1.0
            for _ in rounds:
                done.acquire(timeout=max(0.0, until - now()))
        finally:
            closed = [round_.close() for round_ in rounds]
        return closed

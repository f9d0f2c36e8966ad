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
from .dispatch import INTERRUPTED, NOT_SENT
from .rounds import GRACE, Round

if TYPE_CHECKING:
    from .dispatch import Dispatcher, Sending
    from .members import Member
    from .rounds import Ask, Replies
    from .workers import Starter

SLICE: Final = 0.005
"""Seconds after which a caller that waits for data looks for the replies that threads have received."""


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
        sendings: list[Sending] = []
        try:
            sendings = self._dispatcher.sendings(ask, round_)
            round_.check()
            began = now()
            for sending in sendings:
                self._dispatcher.send(sending, self._begin, self._dispatcher.start_in_thread)
            self._read([sending for sending in sendings if not sending.left], done, began)
            if done.locked():
                self._leave(sendings)
                self._starter.wait(done, 4 * self._timeout + 1.0)
        finally:
            replies = round_.close()
            self._leave(sendings)
        return replies

    def _begin(self, sending: Sending) -> None:
        if not sending.wanted():
            self._dispatcher.answer(sending, NOT_SENT)
            return
        direct = sending.member.direct
        if direct is not None:
            sending.begun = direct.begin(sending.data, len(sending.request))
        if sending.begun is None:
            self._dispatcher.start_in_thread(sending)

    def _read(self, sendings: list[Sending], done: threading.Lock, began: float) -> None:
        """Read the replies to requests that were sent from ``began`` on, until the round has ended, and for a moment
        longer."""
        if not sendings:
            return
        poller = select.poll()
        by_file = {sending.begun.fileno: sending for sending in sendings if sending.begun is not None}
        for fileno in by_file:
            poller.register(fileno, select.POLLIN)
        until, ended = began + self._timeout, False
        while (left := until - now()) > 0:
            for fileno, _ in poller.poll(1000 * min(left, SLICE)):
                if self._receive(by_file[fileno], wait=False):
                    del by_file[fileno]
                    if not by_file:
                        return
                    poller.unregister(fileno)
            if not ended and not done.locked():
                ended, until = True, now() + GRACE

    def _receive(self, sending: Sending, *, wait: bool) -> bool:
        """Read what has arrived. Return whether the reply is complete, and handled."""
        assert sending.begun is not None  # noqa: S101 - only what was sent is read
        replies = sending.begun.receive(wait=wait)
        if replies is None:
            return False
        if AGAIN in replies:
            self._dispatcher.start_in_thread(sending)
        else:
            self._dispatcher.answer(sending, sending.member.recorded(replies))
        return True

    def _leave(self, sendings: list[Sending]) -> None:
        """Leave to threads what the caller hasn't read. It reads and sends nothing more."""
        for sending in sendings:
            if not sending.left:
                self._starter.start(partial(self._finish, sending))
                sending.left = True

    def _finish(self, sending: Sending) -> None:
        """Wait for a reply that the caller hasn't read."""
        if sending.begun is None:  # it was interrupted before, or while it sent the request
            self._dispatcher.answer(sending, INTERRUPTED)
        else:
            self._receive(sending, wait=True)

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

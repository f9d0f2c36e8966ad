"""``Quorum``: sends each step to all members, and answers as one store."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError
from ...core.keys import KeyLayout
from . import listing, steps
from .members import Member
from .rounds import Round
from .votes import majority_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.commands import Command
    from ..base import Backend
    from .members import Request
    from .rounds import Ask, Merging, Replies
    from .workers import Starter

_programs: Final[dict[str, Callable[[Quorum, Command[Any]], Merging]]] = {
    "lock/acquire": steps.acquire,
    "lock/release": steps.release,
    "waiters/unregister": steps.release,
    "lock/renew": steps.renew,
    "lock/adopt": steps.renew,
    "lock/inspect": steps.inspect,
    "lock/force_release": steps.force_release,
    "fence/raise": steps.raise_fence,
    "index/page": listing.read_index,
    "index/inspect": listing.inspect_many,
}

NOT_SENT: Final = LockBackendError("the request isn't wanted any more")


class Quorum:
    """The members of a Redlock.

    Args:
        backends: one for each server.
        location: the addresses, for messages.
        starter: sends what synchronous callers request.
        timeout: seconds after which a member counts as silent.
        fenced: give all members the same fence.
    """

    def __init__(
        self, backends: Sequence[Backend], location: str, starter: Starter, timeout: float, *, fenced: bool
    ) -> None:
        self.location = location
        self.fenced = fenced
        self.members = [Member(backend, starter, timeout) for backend in backends]
        self._starter = starter
        self._timeout = timeout
        self.longest_lease = 0.0
        self._mutex = threading.RLock()
        self._renewals: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def after_fork_in_child(self) -> None:
        """Forget the requests of the parent."""
        self._starter.after_fork_in_child()
        self._mutex = threading.RLock()
        self._renewals.clear()
        self._ended.clear()
        self._tasks = set()
        for member in self.members:
            member.after_fork_in_child()

    # What the steps need

    def note_lease(self, lease: int) -> None:
        """Remember the longest lease, in milliseconds: a release needn't be repeated for longer."""
        self.longest_lease = max(self.longest_lease, lease / 1000)

    def counter_of(self, lock: str) -> str:
        """Return the key of the fence counter of a lock."""
        return KeyLayout(lock.partition(":{")[0]).fence_counters()[0]

    @contextmanager
    def renewing(self, token: str) -> Iterator[None]:
        """A block in which a token is renewed."""
        with self._mutex:
            self._renewals[token] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._renewals[token] -= 1
                if not self._renewals[token]:
                    del self._renewals[token]
                    self._ended.discard(token)

    def end(self, token: str) -> None:
        """Have a renewal that goes on not acquire a released lock again."""
        with self._mutex:
            if token in self._renewals:
                self._ended.add(token)

    def is_renewing(self, token: str) -> bool:
        """Return whether a lock may be acquired again for its renewal: it wasn't released since that began."""
        with self._mutex:
            return token in self._renewals and token not in self._ended

    # Synchronous callers

    def call(self, command: Command[Any]) -> Any:
        """Execute a command, and return the raw reply of the majority.

        Raises:
            LockBackendError: there is no majority.
        """
        (result,) = self.call_many([command], None)
        if isinstance(result, LockBackendError):
            raise result
        return result

    def call_many(self, commands: Sequence[Command[Any]], timeout: float | None) -> list[Any]:
        """Execute commands, those for one member in one write if there is a ``timeout`` in seconds. Return for each the raw
        reply or the error."""
        programs = [_programs[command.name](self, command) for command in commands]
        results: list[Any] = [None] * len(programs)
        replies: dict[int, Replies | None] = dict.fromkeys(range(len(programs)))
        while replies:
            asks: dict[int, Ask] = {}
            for number, reply in replies.items():
                try:
                    asks[number] = next(programs[number]) if reply is None else programs[number].send(reply)
                except StopIteration as end:
                    results[number] = end.value
                except LockBackendError as failure:
                    results[number] = failure
            replies = dict(zip(asks, self._ask(list(asks.values()), timeout), strict=True)) if asks else {}
        return results

    def _ask(self, asks: list[Ask], timeout: float | None) -> list[Replies]:
        """Carry out rounds at the same time."""
        done = threading.Lock()
        done.acquire()
        open_rounds = [len(asks)]

        def on_enough() -> None:
            with self._mutex:
                open_rounds[0] -= 1
                last = not open_rounds[0]
            if last:
                done.release()

        rounds = [Round(ask, on_enough) for ask in asks]
        try:
            batches: dict[int, list[tuple[Ask, Round]]] = {}
            for ask, round_ in zip(asks, rounds, strict=True):
                round_.check()
                for number in self._to_ask(ask, round_):
                    member = self.members[number]
                    if timeout is None or (ask.token and (member.has_unanswered(ask.token) or not ask.releases)):
                        self._send(number, ask, round_, self._start_in_thread)
                    else:
                        batches.setdefault(number, []).append((ask, round_))
            for number, batch in batches.items():
                self._starter.start(partial(self._send_batch, number, batch, timeout or self._timeout))
            self._starter.wait(done, 4 * max(timeout or 0.0, self._timeout) + 1.0)
        finally:
            closed = [round_.close() for round_ in rounds]
        return closed

    def _to_ask(self, ask: Ask, round_: Round) -> list[int]:
        """Return the members to ask, and record the failures of those that are known to be down. These are asked only
        if there is no majority without them."""
        wanted = [number for number, request in enumerate(ask.requests) if request is not None]
        up = [number for number in wanted if self.members[number].may_be_asked()]
        if len(up) == len(wanted) or len(up) < majority_of(len(self.members)):
            return wanted
        for number in set(wanted) - set(up):
            self._settle(number, ask, round_, self.members[number].known_failure())
        return up

    def _send(self, number: int, ask: Ask, round_: Round, start: Callable[..., object]) -> None:
        member, request = self.members[number], ask.requests[number] or ()
        answer = partial(self._answer, number, ask, round_)
        if not ask.token:
            start(member, request, ask, answer)
            return

        def send_next() -> None:
            if not member.may_be_asked():
                answer(member.known_failure())
            elif round_.closed and not ask.releases:
                answer(NOT_SENT)
            else:
                start(member, request, ask, answer)

        if not member.send_in_order(ask.token, send_next):
            start(member, request, ask, answer)

    def _start_in_thread(self, member: Member, request: Request, ask: Ask, answer: Callable[[Any], object]) -> None:
        def job() -> None:
            wanted = ask.still_wanted is None or ask.still_wanted()
            answer(member.call(request) if wanted else NOT_SENT)

        self._starter.start(job)

    def _answer(self, number: int, ask: Ask, round_: Round, reply: Any) -> None:
        if ask.token:
            self.members[number].answered(ask.token)
        self._settle(number, ask, round_, reply)

    def _send_batch(self, number: int, batch: list[tuple[Ask, Round]], timeout: float) -> None:
        requests = [ask.requests[number] or () for ask, _ in batch]
        replies = self.members[number].call_batch(requests, timeout)
        for (ask, round_), reply in zip(batch, replies, strict=True):
            self._settle(number, ask, round_, reply)

    def _settle(self, number: int, ask: Ask, round_: Round, reply: Any) -> None:
        member = self.members[number]
        if ask.releases:
            late_copy = member.may_have_late_copy(ask.token)
            if late_copy or isinstance(reply, LockBackendError):
                member.release_later(ask.requests[number] or (), ask.releases)
        more = round_.record(number, reply)
        if more is not None:
            self._starter.start(partial(member.call, more))

    # Tasks

    async def acall(self, command: Command[Any]) -> Any:
        """Execute a command without blocking the event loop, and return the raw reply of the majority.

        Raises:
            LockBackendError: there is no majority.
        """
        program = _programs[command.name](self, command)
        try:
            ask = next(program)
            while True:
                ask = program.send(await self._aask(ask))
        except StopIteration as end:
            return end.value
        finally:
            program.close()

    async def _aask(self, ask: Ask) -> Replies:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def on_enough() -> None:
            try:
                loop.call_soon_threadsafe(_set_done, done)
            except RuntimeError:
                pass  # the loop is closed, so no task waits

        round_ = Round(ask, on_enough)
        try:
            round_.check()
            for number in self._to_ask(ask, round_):
                self._send(number, ask, round_, partial(self._start_task, loop))
            await done
        finally:
            replies = round_.close()
        return replies

    def _start_task(
        self,
        loop: asyncio.AbstractEventLoop,
        member: Member,
        request: Request,
        ask: Ask,
        answer: Callable[[Any], object],
    ) -> None:
        async def job() -> None:
            wanted = ask.still_wanted is None or ask.still_wanted()
            reply: Any = LockBackendError("the event loop has ended", outcome_unknown=True, transient=True)
            try:
                reply = await member.acall(request) if wanted else NOT_SENT
            finally:
                answer(reply)

        def start() -> None:
            task = loop.create_task(job())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            start()
            return
        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError:  # the loop is closed
            self._start_in_thread(member, request, ask, answer)


def _set_done(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)

"""``Quorum``: sends each step to all members, and answers as one store."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError
from ...core.keys import KeyLayout
from . import listing, steps
from .acquiring import acquire
from .dispatch import Dispatcher
from .fence_clock import FenceClock
from .members import Member
from .task_rounds import TaskRounds
from .thread_rounds import ThreadRounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.commands import Command
    from ..base import Backend
    from .rounds import Ask, Merging, Replies
    from .workers import Starter

_programs: Final[dict[str, Callable[[Quorum, Command[Any]], Merging]]] = {
    "lock/acquire": acquire,
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
        dispatcher = Dispatcher(self.members, starter, timeout)
        self._thread_rounds = ThreadRounds(dispatcher, starter, timeout)
        self._task_rounds = TaskRounds(dispatcher)
        self.longest_lease = 0.0
        self.fence_clock = FenceClock()
        self._mutex = threading.RLock()
        self._renewals: Counter[str] = Counter()
        self._ended: set[str] = set()

    def after_fork_in_child(self) -> None:
        """Forget the requests of the parent."""
        self._starter.after_fork_in_child()
        self._mutex = threading.RLock()
        self._renewals.clear()
        self._ended.clear()
        self._task_rounds.forget()
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

    def call(self, command: Command[Any]) -> Any:
        """Execute a command, and return the raw reply of the majority.

        Raises:
            LockBackendError: there is no majority.
        """
        program = _programs[command.name](self, command)
        try:
            ask = next(program)
            while True:
                ask = program.send(self._thread_rounds.ask(ask))
        except StopIteration as end:
            return end.value
        finally:
            program.close()

    async def acall(self, command: Command[Any]) -> Any:
        """Execute a command without blocking the event loop, and return the raw reply of the majority.

        Raises:
            LockBackendError: there is no majority.
        """
        program = _programs[command.name](self, command)
        try:
            ask = next(program)
            while True:
                ask = program.send(await self._task_rounds.ask(ask))
        except StopIteration as end:
            return end.value
        finally:
            program.close()

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Execute commands, those for one member in one write, within some seconds. Return for each the raw reply or the
        error."""
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
            rounds = self._thread_rounds.ask_many(list(asks.values()), timeout) if asks else []
            replies = dict(zip(asks, rounds, strict=True))
        return results

"""Who am I, and which grants are mine.

An owner is a thread or a task *and* a context. The context alone leaks: tasks and threads inherit a copy of it. The
thread alone leaks too: several requests share an executor's thread. Whoever has only one of the two is a stranger to
the grant; if he would wait for himself he is told so.

The registry keeps the grants of every owner for as long as that owner lives, and then lets go; what is left then is
the user's own reference. Renewal follows reachability, so a grant that nobody can release any more ends with its lease.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import events
from base64 import urlsafe_b64encode
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from . import clock
from .constants import REMEMBER
from .grant import State

if TYPE_CHECKING:
    from .effects import Place
    from .grant import Grant, Hold

Owner: TypeAlias = "threading.Thread | asyncio.Task[object]"

_mine: ContextVar[tuple[int, ...]] = ContextVar("django_redis_locks_grants", default=())

_entered: ContextVar[tuple[Grant, ...]] = ContextVar("django_redis_locks_entered", default=())
"""The grants of the ``with lock:`` blocks that the caller is in; the lock object itself keeps nothing."""

running_loop = events._get_running_loop
"""The loop that runs in this thread, or None: the one in C that doesn't raise."""


def me() -> Owner:
    """The running task, or the thread outside of one."""
    loop = running_loop()
    if loop is not None:
        task = asyncio.current_task(loop)
        if task is not None:
            return task
    return threading.current_thread()


def name_of(owner: Owner) -> str:
    return owner.name if isinstance(owner, threading.Thread) else owner.get_name()


def alive(hold: Hold) -> bool:
    """Whether the thread or task that acquired it still runs."""
    owner = hold.owner()
    if owner is None:
        return False
    return owner.is_alive() if isinstance(owner, threading.Thread) else not owner.done()  # type: ignore[attr-defined]


def enter(grant: Grant) -> None:
    """A ``with`` block begins."""
    _entered.set((*_entered.get(), grant))


def leave(lock: object) -> Grant | None:
    """The innermost ``with`` block of this lock object ends: the grant it began with. Another object for the same key has
    blocks of its own. None if it began in another context."""
    grants = _entered.get()
    for index in range(len(grants) - 1, -1, -1):
        if grants[index]._keeper is lock:
            _entered.set(grants[:index] + grants[index + 1 :])
            return grants[index]
    return None


class Registry:
    """The grants of this process that aren't released, strongly held.

    Its mutex, as those of the queues and the janitor, may be entered again: the collector may choose a moment inside of
    it to end an abandoned generator, whose ``with`` block then releases a lock in this same thread.
    """

    FEW = 64
    """Below so many grants nobody looks for forgotten ones."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._grants: dict[int, Grant] = {}
        self._by_place: dict[Place, list[Grant]] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def after_fork_in_child(self) -> None:
        """The parent's grants stay findable, so that a ``with`` of the parent ends quietly in the child, but none of
        them is live here. Another thread may have been at work on the tables when the process forked."""
        self._mutex = threading.RLock()
        self._by_place = {}
        for grant in self._grants.values():
            self._by_place.setdefault(grant.hold.place, []).append(grant)

    def keep(self, grant: Grant) -> None:
        """Register a grant of the caller, in his context too."""
        with self._mutex:
            self._grants[grant.id] = grant
            self._by_place[grant.hold.place] = [*self._by_place.get(grant.hold.place, ()), grant]
            if len(self._grants) > self.FEW:
                self._second_chance()
        ids = _mine.get()
        if len(ids) >= 8:
            ids = tuple(id for id in ids if id in self._grants)
        _mine.set((*ids, grant.id))

    def forget(self, grant: Grant) -> None:
        with self._mutex:
            self._forget(grant)
        ids = _mine.get()
        if grant.id in ids:
            _mine.set(tuple(id for id in ids if id != grant.id))

    def forget_hold(self, hold: Hold) -> None:
        """Let go of whatever the registry has on a hold: its owner is dead."""
        with self._mutex:
            for grant in [grant for grant in self._by_place.get(hold.place, ()) if grant.hold is hold]:
                self._forget(grant)

    def knows(self, place: Place) -> bool:
        """Whether anybody in this process has a grant there."""
        return place in self._by_place

    def newest(self, place: Place) -> Grant | None:
        """The caller's newest grant there that he hasn't released; it may be lost."""
        owner = me()
        ids = _mine.get()
        for grant in self._at(place):
            if grant.id in ids and grant.hold.state is not State.GONE and grant.hold.owner() is owner:
                return grant
        return None

    def of_block(self, place: Place, lock: object) -> Grant | None:
        """The newest grant of this lock object that the caller's thread or task acquired, whatever its context, or one
        that is dead by now: a loop that ends closes its generators in another task."""
        owner = me()
        for grant in self._at(place):
            if grant._keeper is lock and (grant.hold.owner() is owner or not alive(grant.hold)):
                return grant
        return None

    def own(self, place: Place) -> Grant | None:
        """The caller's newest grant there that is live."""
        grant = self.newest(place)
        return grant if grant is not None and grant.hold.live else None

    def entangled(self, place: Place) -> str | None:
        """Why the caller would wait for himself there: one sentence, or None if he wouldn't."""
        owner = me()
        ids = _mine.get()
        for grant in self._at(place):
            if not grant.hold.live:
                continue
            if grant.hold.owner() is owner:
                return (
                    "this thread holds it, on behalf of another context: they share an executor's thread. "
                    "Use the lock's a-methods, or give each request a thread of its own"
                )
            if grant.id in ids:
                return (
                    "the task or thread that started this one holds it. "
                    "Acquire it here alone, or hand the grant down and release it there"
                )
        return None

    def innermost(self) -> Grant | None:
        """The newest grant in the caller's context that isn't released."""
        for id in reversed(_mine.get()):
            grant = self._grants.get(id)
            if grant is not None and not grant.given_back:
                return grant
        return None

    def _at(self, place: Place) -> list[Grant]:
        grants = self._by_place.get(place)
        return grants[::-1] if grants else []

    def _forget(self, grant: Grant) -> None:
        if self._grants.pop(grant.id, None) is None:
            return
        grants = [other for other in self._by_place.get(grant.hold.place, ()) if other is not grant]
        if grants:
            self._by_place[grant.hold.place] = grants
        else:
            self._by_place.pop(grant.hold.place, None)

    def _second_chance(self) -> None:
        """Look at the oldest grant: forget it if nobody can need it, else put it behind the others."""
        grant = next(iter(self._grants.values()))
        hold = grant.hold
        if hold.state is State.GONE or not alive(hold) or clock.now() > hold.deadline + REMEMBER:
            self._forget(grant)
        else:
            self._grants[grant.id] = self._grants.pop(grant.id)


registry = Registry()
"""The grants of this process."""


class _Tokens:
    """Tokens nobody else has and nobody can guess: a random prefix of the process, and a counter.

    72 bits of chance, since processes of many hosts share a server; short, since every lock in Redis holds one."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._pid = os.getpid()
        self._prefix = urlsafe_b64encode(os.urandom(9)).decode()
        self._next = count(1).__next__

    def mint(self) -> str:
        if self._pid != os.getpid():  # a fork that didn't run Python's hooks
            self.renew()
        return f"{self._prefix}{self._next():x}"


_tokens = _Tokens()
mint_token = _tokens.mint


def _after_fork_in_child() -> None:
    registry.after_fork_in_child()
    _tokens.renew()


os.register_at_fork(after_in_child=_after_fork_in_child)

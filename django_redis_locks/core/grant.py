"""A hold is one possession of a lock in this process; a grant is what ``acquire`` returns: a handle on a hold.

Ownership lives here and never in the lock object, which threads and tasks share. Re-entries share the hold: the count
is kept here, in the process, so that the store's steps stay idempotent.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

from . import clock, events
from .constants import DRIFT, DRIFT_SHARE
from .durations import Duration, lease_ms
from .errors import LockBackendError, LockError, LockLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .effects import Place

OnLost: TypeAlias = "Literal['cancel'] | Callable[[Grant], Any] | None"

mint_id = itertools.count(1).__next__
"""Ids of grants."""


def _no_grant() -> None:
    return None


def validity(lease: int) -> float:
    """For how many seconds after the request a lease of so many milliseconds counts here."""
    return lease / 1000 * (1 - DRIFT_SHARE) - DRIFT


class State(Enum):
    HELD = "held"
    RELEASING = "releasing"
    GONE = "gone"


class Hold:
    """One possession of a lock: token, fence, lease and state. ``mutex`` guards what several threads change."""

    __slots__ = (
        "__weakref__",
        "alias",
        "deadline",
        "doubted",
        "fence",
        "freed_in_time",
        "grant",
        "home",
        "inside",
        "key",
        "lease",
        "lost_why",
        "mutex",
        "name",
        "on_lost",
        "owner",
        "pid",
        "place",
        "renew_until",
        "since",
        "state",
        "token",
        "unanswered",
    )

    def __init__(
        self,
        place: Place,
        key: str,
        name: str,
        alias: str,
        token: str,
        *,
        grant: int,
        fence: int | None,
        lease: int,
        sent: float,
        renew_for: float,
        owner: object,
        home: object,
        on_lost: OnLost,
        unanswered: bool,
    ) -> None:
        self.place = place
        self.key = key
        self.name = name
        self.alias = alias
        self.token = token
        self.fence = fence
        self.lease = lease
        self.since = sent
        self.deadline = sent + validity(lease)
        self.renew_until = sent + renew_for if renew_for else 0.0
        self.owner = weakref.ref(owner)
        self.home = home
        self.on_lost = on_lost
        self.unanswered = unanswered
        self.inside = {grant}
        """The ids of the grants that aren't given back."""
        self.doubted = False
        """An earlier release failed; it may be tried again."""
        self.freed_in_time = False
        """That release was sent before the deadline, so that it, or the janitor, may have freed the lock since."""
        self.lost_why: str | None = None
        self.state = State.HELD
        self.grant: Callable[[], Grant | None] = _no_grant
        """The grant of the outermost entry, if somebody still has it."""
        self.pid = os.getpid()
        self.mutex = threading.Lock()

    @property
    def foreign(self) -> bool:
        """A fork's child looks at its parent's hold."""
        return self.pid != os.getpid()

    @property
    def over(self) -> bool:
        """The lease ended, as far as this process can know, or the lock was found in other hands."""
        return self.lost_why is not None or clock.now() >= self.deadline

    @property
    def held(self) -> bool:
        """Not released, by this process, of a lock that was there; it may be lost."""
        return self.state is State.HELD and self.fence is not None and not self.foreign

    @property
    def live(self) -> bool:
        """Held now: it may be re-entered and renewed."""
        return self.held and not self.over

    def age(self) -> float:
        """Seconds since it was acquired."""
        return clock.now() - self.since

    def prolong(self, sent: float, lease: int) -> None:
        """The store gave a lease of so many milliseconds to a request sent then. A deadline never moves back."""
        with self.mutex:
            self.deadline = max(self.deadline, sent + validity(lease))

    def enter(self, grant: int) -> bool:
        """One more grant on it; False if the hold isn't held any more."""
        with self.mutex:
            if self.state is not State.HELD:
                return False
            self.inside.add(grant)
            return True

    def leave(self, grant: int) -> bool:
        """A grant is given back; True if that was the last one, so that the lock is to be freed now.

        Once more after a release that failed, it is to be freed once more. Every step may be done again: a signal handler
        may have raised between any two of them."""
        with self.mutex:
            self.inside.discard(grant)
            if self.inside or self.state is State.GONE:
                return False
            if self.fence is None:
                self.state = State.GONE
                return False
            if self.state is State.RELEASING and not self.doubted:
                return False  # another thread is at it
            self.state = State.RELEASING
            return True

    def lose(self, why: str, states: tuple[State, ...] = (State.HELD,)) -> bool:
        """Note that the lock is lost, and tell. A renewal's news of a hold that is being released is out of date."""
        with self.mutex:
            if self.lost_why is not None or self.state not in states:
                return False
            self.lost_why = why
        events.emit(events.Lost(self.key, self.name, self.alias, self.fence, self.age(), why))
        return True


class Keeper(Protocol):
    """What a grant needs of the lock it came from."""

    def _release(self, grant: Grant) -> None: ...
    async def _arelease(self, grant: Grant) -> None: ...
    def _extend(self, hold: Hold, lease: int) -> None: ...
    async def _aextend(self, hold: Hold, lease: int) -> None: ...


class Grant:
    """The proof of holding a lock, and the handle to give it back.

    Usable from any thread or task. ``with grant:`` and ``async with grant:`` release it at the end.

    Attributes:
        fence: grows with every hold of this key; let a store refuse a write whose fence is smaller than the one it has
            seen (``stored <= mine`` passes, since one grant may write more than once). None if not ``held``.
        held: False if the store was down and ``ON_BACKEND_ERROR`` is "open": nothing protects the section.
    """

    __slots__ = ("__weakref__", "_keeper", "hold", "id")

    def __init__(self, hold: Hold, keeper: Keeper, id: int) -> None:
        self.hold = hold
        self.id = id
        self._keeper = keeper
        if hold.grant is _no_grant:
            hold.grant = weakref.ref(self)

    def __repr__(self) -> str:
        state = "released" if self.given_back else "lost" if self.lost else "held" if self.held else "unprotected"
        return f"<Grant {self.name!r} fence={self.fence} {state}>"

    @property
    def key(self) -> str:
        return self.hold.key

    @property
    def name(self) -> str:
        return self.hold.name

    @property
    def alias(self) -> str:
        return self.hold.alias

    @property
    def fence(self) -> int | None:
        return self.hold.fence

    @property
    def held(self) -> bool:
        return self.hold.fence is not None

    @property
    def given_back(self) -> bool:
        """Released, or on the way."""
        return self.id not in self.hold.inside

    @property
    def lost(self) -> bool:
        """True once the lock isn't ours any more although it wasn't released: known without asking the store, also
        when that can't be reached. In a forked child always True."""
        hold = self.hold
        if hold.foreign:
            return True
        return hold.lost_why is not None or (hold.held and clock.now() >= hold.deadline)

    def remaining(self) -> float:
        """Seconds until the lease ends, by this process's clock; 0.0 if it is lost or released."""
        if self.given_back or not self.hold.live:
            return 0.0
        return max(0.0, self.hold.deadline - clock.now())

    def extend(self, expire: Duration) -> None:
        """Let the lease end ``expire`` seconds from now, or later if it did anyway. One round trip.

        Raises:
            LockLost: it isn't held any more.
            LockBackendError: the store can't be reached; the lease is as it was.
            ValueError: not a length of time.
        """
        lease = lease_ms(expire)
        self._check()
        self._keeper._extend(self.hold, lease)

    async def aextend(self, expire: Duration) -> None:
        """As ``extend``."""
        lease = lease_ms(expire)
        self._check()
        await self._keeper._aextend(self.hold, lease)

    def ensure_held(self, confirm: bool = False) -> None:
        """Raise unless the lock is still ours. Local and free; ``confirm=True`` asks the store too, one round trip.

        Raises:
            LockLost: released, lost, or taken away.
            LockBackendError: there never was a lock (``ON_BACKEND_ERROR`` "open"), or the store can't be reached.
        """
        self._check()
        if confirm:
            self._keeper._extend(self.hold, 1)  # no step lowers a lease, so this one only asks

    async def aensure_held(self, confirm: bool = False) -> None:
        """As ``ensure_held``."""
        self._check()
        if confirm:
            await self._keeper._aextend(self.hold, 1)

    def release(self) -> None:
        """Give the lock back; the last of several re-entries frees it. A second call does nothing.

        Raises:
            LockLost: it wasn't ours any more.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        self._keeper._release(self)

    async def arelease(self) -> None:
        """As ``release``."""
        await self._keeper._arelease(self)

    def _check(self) -> None:
        hold = self.hold
        about: dict[str, Any] = {"key": hold.key, "name": hold.name, "alias": hold.alias}
        if hold.fence is None:
            raise LockBackendError("the store was down when this section began: there is no lock", **about)
        if self.given_back or not hold.live:
            if hold.lost_why is not None:
                why = hold.lost_why
            elif hold.foreign:
                why = "this process was forked from its holder"
            else:
                why = "released" if self.given_back or hold.state is not State.HELD else "expired"
            raise LockLost(f"lock {hold.name!r} isn't held any more: {why}", **about)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.release()
        except LockError as failure:
            self._at_exit(failure, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.arelease()
        except LockError as failure:
            self._at_exit(failure, error)

    def _at_exit(self, failure: LockError, error: BaseException | None) -> None:
        """The end of a ``with``: the body's own exception is never masked, and a store that is down now spoils nothing
        that was protected until now; the release goes on in the background."""
        if isinstance(failure, LockBackendError):
            events.emit(events.BackendFailed(self.key, self.name, self.alias, "release", str(failure)))
        elif error is None:
            raise failure

"""What a program may ask of the world.

A lock's logic is written as *programs*: generators that yield effects and are sent replies. They hold no socket and
know neither threads nor event loops, and the only clock they read is the engine's, so that one text serves synchronous
and asynchronous callers, and a test can step it with a list of replies. ``reply = yield from Effect(...)`` gives the
reply with its type; ``yield Effect(...)`` is the same at less cost. A failure is thrown into the program at its ``yield``.

Only ``Command``, ``Wait``, ``Subscribe`` and ``Sleep`` may block. Everything else is *local*: it ends at once, so a program may ask
for it while it unwinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from .commands import Command, Effect
from .queue_values import Attempt, HandedOverLock, QueuePosition, Waiter

if TYPE_CHECKING:
    from .hold import Hold
    from .keys import LockId
    from .tuning import Tuning


@dataclass(slots=True)
class Sleep(Effect[None]):
    """Sleep for so many seconds."""

    local: ClassVar[bool] = False

    seconds: float


@dataclass(slots=True)
class ReportUnreachable(Effect[float]):
    """A request that was sent at this time failed, since the server can't be reached. Returns for how many seconds it may
    still be asked: after ``patience`` seconds without any answer it is down, for all callers of this process."""

    sent: float
    failure: str
    patience: float


@dataclass(slots=True)
class Wait(Effect[Attempt | None]):
    """Sleep until it is this seat's turn to ask the store; None if that doesn't come before ``until``. The first time it
    queues up behind those who wait for this key in this process.

    Only the head of a queue asks: at once if nobody asked before it or something was handed over, and later when a
    wake-up has come since the last time somebody asked, when ``pause`` seconds are over (None: whatever the last head
    chose), or at ``until``. ``position`` is what the answer to its last question said.
    """

    local: ClassVar[bool] = False

    waiter: Waiter
    until: float
    pause: float | None = None
    position: QueuePosition | None = None


@dataclass(slots=True)
class LeaveQueue(Effect[None]):
    """Give the seat up; twice is once. Whoever is head then asks not before ``pause`` seconds or a wake-up (None: no
    change). ``position`` is what the answer to its last question said; None if there was none: what the queue was told
    or handed then goes to the next head, and from an empty queue to the janitor."""

    waiter: Waiter
    pause: float | None = None
    position: QueuePosition | None = None


@dataclass(slots=True)
class Subscribe(Effect[bool]):
    """Have the store's wake-ups reach this process; returns whether they do, after ``seconds`` at most."""

    local: ClassVar[bool] = False

    channel: str
    seconds: float


@dataclass(slots=True)
class HandOver(Effect[bool]):
    """Give a hold's token to whoever is next in the caller's own queue: then the hold is over; False if nobody waits
    there."""

    handed: HandedOverLock
    home: object


@dataclass(slots=True)
class Requeue(Effect[str]):
    """The address of the caller's own queue, to line up again in the store; "" if nobody waits there."""

    lock_id: LockId
    home: object


@dataclass(slots=True)
class NotifyWaiters(Effect[None]):
    """The lock was freed. If the store ``woke`` another process this one lets that go first, for a moment; otherwise
    every queue of this process for it has its head ask. ``address`` is the queue that was to line up again in the
    same step: it may be gone by now."""

    lock_id: LockId
    woke: bool
    address: str = ""


@dataclass(slots=True)
class Cleanup(Effect[None]):
    """Something may be left in the store under this token. ``delete`` frees it if it is still this token's, and may
    be repeated at will; the janitor does so, at once and again when late copies of a request may have come, the last
    time after ``lease`` seconds."""

    lock_id: LockId
    delete: Command[int]
    lease: float


Handlers: TypeAlias = Mapping[type[Effect[Any]], Callable[[Any], Any]]
"""How each kind of effect is carried out."""


class Performer(Protocol):
    """Carries effects out, one handler for each kind. ``handlers`` serve the local ones of an asynchronous program as
    well; for the others it has ``ahandlers``, whose replies are awaited."""

    @property
    def handlers(self) -> Handlers: ...
    @property
    def ahandlers(self) -> Handlers: ...
    @property
    def tuning(self) -> Tuning: ...
    @property
    def queued(self) -> Callable[[LockId], bool]:
        """Whether anybody in this process waits for a place: if not, there is nobody to hand a lock over to, or to tell."""

    def uncontended(self, waiter: Waiter, /) -> bool:
        """Whether nobody in this process waits for a place, or did lately: then one may ask before one queues up."""

    def end_uncontended(self, waiter: Waiter, /) -> bool:
        """There was nothing to wait for; False if there is a seat to give up all the same, since others came meanwhile."""

    def may_block(self) -> object:
        """
        Raises:
            SynchronousOnlyOperation: this thread runs an event loop, which must not be blocked.
        """

    def listen_for(self, lock_id: LockId, /) -> object:
        """Have messages about a lock reach this process, soon."""

    def watch(self, hold: Hold, prolong: Callable[[str, int], Command[bool]], lease: int, /) -> object:
        """Renew this hold from now on with the commands that ``prolong`` makes for its token and ``lease`` milliseconds, or
        at least tell when its lease ends. Nobody else notices.

        Raises:
            LockBackendError: there is no thread to be had for it.
        """

    def forget_at_end(self, hold: Hold, /) -> object:
        """Have this process forget a hold whose lease isn't renewed when that ends, unless something refers to its grant."""

    def unwatch(self, hold: Hold, /) -> object:
        """No more renewal of this hold: its release is about to be sent."""

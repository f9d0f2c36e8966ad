"""What a program may ask of the world.

A lock's logic is written as *programs*: generators that yield effects and are sent replies. They read no clock, hold
no socket and know neither threads nor event loops, so that one text serves synchronous and asynchronous callers, and
a test can step it with a list of replies. ``reply = yield from Effect(...)`` gives the reply with its type. A failure
is thrown into the program at its ``yield``.

Only ``Command``, ``Wait`` and ``Pause`` may block. Everything else is *local*: it ends at once, so a program may ask
for it while it unwinds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .grant import Hold

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Effect(Generic[R]):
    """One thing asked of the world; its reply has type ``R``."""

    local: ClassVar[bool] = True

    def __iter__(self) -> Generator[Effect[Any], Any, R]:
        reply: R = yield self
        return reply


Program: TypeAlias = Generator[Effect[Any], Any, R]


class Place(NamedTuple):
    """Where a lock is: its store, and its key there. Equal places exclude each other."""

    store: str
    lock: str


@dataclass(frozen=True, slots=True)
class Now(Effect[float]):
    """The engine's clock, in seconds."""


@dataclass(frozen=True, slots=True)
class Command(Effect[R]):
    """One atomic step on the store, sent exactly once.

    ``name`` is all that a backend knows of a primitive: for Redis the path of a script. A request whose answer is
    missing is thrown in as a ``LockBackendError`` with ``unanswered``.
    """

    local: ClassVar[bool] = False

    name: str
    keys: tuple[str, ...]
    args: tuple[str | int, ...]
    parse: Callable[[Any], R]


@dataclass(frozen=True, slots=True)
class Pause(Effect[None]):
    """Sleep for so many seconds."""

    local: ClassVar[bool] = False

    seconds: float


class Seat:
    """A seat in the queue of one key in this process. ``home`` is an event loop, or None for threads: each has a queue
    of its own, so that a blocked loop holds up nobody else. Who made a seat can give it up at any moment, whether or not
    he got to join; ``queue`` and ``gate`` belong to the queues."""

    __slots__ = ("gate", "home", "place", "queue")

    def __init__(self, place: Place, home: object) -> None:
        self.place = place
        self.home = home
        self.queue: Any = None
        self.gate: Any = None


@dataclass(frozen=True, slots=True)
class Join(Effect[None]):
    """Queue up behind those who wait for this key in this process."""

    seat: Seat


@dataclass(frozen=True, slots=True)
class Wait(Effect[bool]):
    """Sleep until it is this seat's turn to ask the store; False if that doesn't come before ``until``.

    Only the head of a queue asks: at once if nobody asked before it, and later when a wake-up has come since the last
    time somebody asked, when ``pause`` seconds are over (None: whatever the last head chose), or at ``until``.
    """

    local: ClassVar[bool] = False

    seat: Seat
    until: float
    pause: float | None = None


@dataclass(frozen=True, slots=True)
class Leave(Effect[None]):
    """Give the seat up; twice is once. Whoever is head then asks not before ``pause`` seconds or a wake-up (None: no change)."""

    seat: Seat
    pause: float | None = None


@dataclass(frozen=True, slots=True)
class Wake(Effect[None]):
    """The lock may be free: every queue of this process for it has its head ask."""

    place: Place


@dataclass(frozen=True, slots=True)
class Watch(Effect[None]):
    """Renew this hold from now on with ``prolong``, which asks for ``lease`` milliseconds, or at least tell when its
    lease ends."""

    hold: Hold
    prolong: Command[bool]
    lease: int


@dataclass(frozen=True, slots=True)
class Unwatch(Effect[None]):
    """No more renewal of this hold: its release is about to be sent."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Sweep(Effect[None]):
    """Something may be left in the store under this token. ``delete`` frees it if it is still this token's, and may
    be repeated at will; the janitor does so, at once and again when late copies of a request may have come, the last
    time after ``lease`` seconds."""

    place: Place
    delete: Command[bool]
    lease: float


class Performer(Protocol):
    """Carries effects out. ``perform`` also serves the local ones of an asynchronous program."""

    def perform(self, effect: Effect[R]) -> R: ...

    async def aperform(self, effect: Effect[R]) -> R: ...

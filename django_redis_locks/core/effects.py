"""What a program may ask of the world.

A lock's logic is written as *programs*: generators that yield effects and are sent replies. They hold no socket and
know neither threads nor event loops, and the only clock they read is the engine's, so that one text serves synchronous
and asynchronous callers, and a test can step it with a list of replies. ``reply = yield from Effect(...)`` gives the
reply with its type; ``yield Effect(...)`` is the same at less cost. A failure is thrown into the program at its ``yield``.

Only ``Command``, ``Wait``, ``Subscribe`` and ``Sleep`` may block. Everything else is *local*: it ends at once, so a program may ask
for it while it unwinds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from . import clock, events
from .errors import LockBackendError, LockError

if TYPE_CHECKING:
    from .hold import Hold
    from .tuning import Tuning

R = TypeVar("R")


@dataclass(slots=True)
class Effect(Generic[R]):
    """One thing asked of the world; its reply has type ``R``."""

    local: ClassVar[bool] = True

    def __iter__(self) -> Generator[Effect[Any], Any, R]:
        reply: R = yield self
        return reply


Program: TypeAlias = Generator[Effect[Any], Any, R]


PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What a parser raises over an answer that is none; not what a signal handler raises inside of it."""


class LockId(NamedTuple):
    """Where a lock is: its store, and its key there. Equal places exclude each other."""

    store: str
    lock: str


@dataclass(slots=True)
class Command(Effect[R]):
    """One atomic step on the store, sent exactly once.

    ``name`` is all that a backend knows of a primitive: for Redis the path of a script. A request whose answer is
    missing is thrown in as a ``LockBackendError`` with ``outcome_unknown``.
    """

    local: ClassVar[bool] = False

    name: str
    keys: tuple[str, ...]
    args: tuple[str | int | bytes, ...]
    parse: Callable[[Any], R]

    def read(self, reply: Any) -> R:
        """What a reply means.

        Raises:
            LockBackendError: nothing, to this command: somebody else answered it, or something else was.
        """
        try:
            return self.parse(reply)
        except LockError:
            raise
        except PARSE_ERRORS as error:
            raise LockBackendError(
                f"that is no answer to {self.name}: {str(reply)[:80]}", outcome_unknown=True, transient=True
            ) from error


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


class QueueOutage:
    """How the last request for one key failed. Its sender notes it, so that no waiter behind it in the queue takes a store
    that is down for a busy lock."""

    failure: str | None = None


def _always() -> bool:
    """Of a seat whose caller isn't known."""
    return True


class Waiter:
    """A seat in the queue of one key in this process. ``home`` is an event loop, or None for threads: each has a queue
    of its own, so that a blocked loop holds up nobody else. ``channel`` is how the names of inboxes begin that may hear
    of this key, ``lease`` the milliseconds of the lease that is wished for, 0 if only the store can give it. Who made a
    seat can give it up at any moment, whether or not he got to join; the rest belongs to the queues. ``wish`` is what only
    its caller keeps: once that is gone the seat is given up."""

    __slots__ = ("attempt", "caller", "channel", "gate", "home", "lease", "lock_id", "queue")

    def __init__(self, lock_id: LockId, home: object, channel: str, lease: int = 0, wish: object = None) -> None:
        self.caller: Callable[[], object] = _always if wish is None else weakref.ref(wish)
        self.lock_id = lock_id
        self.home = home
        self.channel = channel
        self.lease = lease
        self.queue: Any = None
        self.gate: Any = None
        self.attempt: Attempt | None = None

    @property
    def gave_back(self) -> bool:
        """What it took over without asking the store is the queue's again."""
        taken = None if self.attempt is None else self.attempt.taken
        return taken is not None and taken.taker is not self


class HandedOverLock:
    """A lock that a hold of this process gave back without telling the store: the next in the queue takes it over.

    Attributes:
        hold: whose it was; its token is still in the store.
        free: makes the command that frees the lock if it is still a token's.
        go_on: what the store would say to who takes it over as it is, with its token.
        taker: the seat that does so. Until its queue is told that this went well, it is the queue's.
        doubtful: an attempt to take it over went unanswered, so nothing can be said of a token that isn't there.
    """

    __slots__ = ("doubtful", "free", "go_on", "hold", "taker")

    def __init__(self, hold: Hold, free: Callable[[str], Command[int]], go_on: Callable[[], Any]) -> None:
        self.hold = hold
        self.free = free
        self.go_on = go_on
        self.taker: Waiter | None = None
        self.doubtful = False

    def rejected(self, attempt: Attempt) -> None:
        """Whose turn it was isn't heard of any more. The next one asks the store."""
        self.hold.reserved_fences = 0
        if attempt.taken is self:
            self.taker = None
        else:
            self.doubtful = True

    def gone(self) -> None:
        """It wasn't there any more: whether it was taken before its release or after it the store doesn't say."""
        hold = self.hold
        if not self.doubtful and not hold.release_failed and clock.now() < hold.deadline:
            events.emit(events.Vanished(hold.key, hold.name, hold.alias, hold.fence))


class Attempt(NamedTuple):
    """It is this seat's turn to ask the store, or to take over what it needn't ask for.

    Attributes:
        address: where the store reaches this queue, to be registered if the answer is "busy"; "" if nobody listens.
        arrival: when the queue lined up in the store, on its clock; 0 if it is to line up now.
        more: others wait behind this seat.
        handed: what to take over.
        taken: what is taken over as it is: there is nothing to ask.
    """

    address: str = ""
    enqueued_at: int = 0
    more: bool = False
    handed: HandedOverLock | None = None
    taken: HandedOverLock | None = None


class QueuePosition(NamedTuple):
    """What the store says of the line of processes before a lock.

    Attributes:
        arrival: since when this queue stands in it, on the store's clock; 0 if it doesn't.
        others: other queues do.
    """

    enqueued_at: int = 0
    others: bool = False


@dataclass(slots=True)
class Wait(Effect["Attempt | None"]):
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

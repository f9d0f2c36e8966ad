"""The effects of programs, and the interface of the performer that executes them.

A lock's logic is written as *programs*: generators that yield effects and receive their replies. They use no sockets,
threads or event loops, and no clock but the engine's. So one program serves synchronous and asynchronous callers, and a
test can step it with a list of replies. ``reply = yield from Effect(...)`` returns the typed reply; ``yield
Effect(...)`` does the same at less cost. A failure is thrown into the program at its ``yield``.

Only ``Command``, ``SendCommands``, ``Wait``, ``Subscribe`` and ``Sleep`` may block. All other effects are *local*: they never block, so a
program may yield them while it handles an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from .commands import Command, Effect
from .queue_entry import Entry
from .queue_values import Attempt, HandedOverLock, QueuePosition, Waiter

if TYPE_CHECKING:
    from .hold import Hold
    from .keys import LockId
    from .prepared import PreparedCommand
    from .tuning import Tuning


@dataclass(slots=True)
class Sleep(Effect[None]):
    """Sleep for ``seconds``."""

    local: ClassVar[bool] = False

    seconds: float


@dataclass(slots=True)
class SendCommands(Effect[list[Any]]):
    """Send independent commands together; the result is the value or the ``LockBackendError`` of each."""

    local: ClassVar[bool] = False

    commands: Sequence[Command[Any]]


@dataclass(slots=True)
class ReportUnreachable(Effect[float]):
    """Report a request that failed because the server can't be reached. Returns the seconds for which it may be
    retried.

    Attributes:
        sent: when the request was sent.
        failure: the reason, for the errors of other callers.
        give_up_after: seconds without any reply after which the server counts as down, for all callers of this process.
    """

    sent: float
    failure: str
    give_up_after: float


@dataclass(slots=True)
class Wait(Effect[Attempt | None]):
    """Sleep until the waiter may try to acquire. Returns its attempt, or None if there is none before ``until``.

    The first wait adds the waiter to the local wait queue of its lock. Only the head of a queue may try: at once if no
    waiter has tried before it or a lock was handed over or granted; otherwise after a wake-up since the last attempt,
    after ``pause`` seconds (None: at the time that the last head chose), or at ``until``. ``position`` comes from the
    reply to the last attempt.
    """

    local: ClassVar[bool] = False

    waiter: Waiter
    until: float
    pause: float | None = None
    position: QueuePosition | None = None


@dataclass(slots=True)
class LeaveQueue(Effect[None]):
    """Remove a waiter from its queue. Repeating this has no effect.

    Attributes:
        waiter: the waiter.
        pause: seconds until the next head tries, unless a wake-up comes earlier; None for no change.
        position: from the reply to the last attempt; None without a reply. A wake-up, or a lock that was handed over or
            granted, then goes to the next head, or from an empty queue to the maintenance thread.
    """

    waiter: Waiter
    pause: float | None = None
    position: QueuePosition | None = None


@dataclass(slots=True)
class Subscribe(Effect[bool]):
    """Subscribe to the store's messages. Returns whether the subscription is confirmed, after ``seconds`` at most."""

    local: ClassVar[bool] = False

    channel: str
    seconds: float


@dataclass(slots=True)
class HandOver(Effect[bool]):
    """Hand a lock over to the next waiter in the caller's own queue, which ends the hold. Returns False without a
    waiter."""

    handed: HandedOverLock
    loop: object


@dataclass(slots=True)
class Requeue(Effect[Entry | None]):
    """Return the entry of the caller's own queue, to register it in the store again; None if it has no waiter."""

    lock_id: LockId
    loop: object


@dataclass(slots=True)
class NotifyWaiters(Effect[None]):
    """Notify the local waiters of a freed lock, so that they send a request.

    Attributes:
        lock_id: the lock.
        passed_on: the store granted the lock to a waiter. Then only queues that aren't registered in the store send a
            request, which registers them; the others sleep on.
        entry: the entry of the local queue that the release registered again. If the queue is empty by now, the entry is
            removed.
        keys: the keys of the command that removes it.
    """

    lock_id: LockId
    passed_on: bool
    entry: Entry | None = None
    keys: tuple[str, ...] = ()


@dataclass(slots=True)
class Cleanup(Effect[None]):
    """Delete in the background the token that an unanswered request may have left in the store.

    Attributes:
        lock_id: the lock.
        delete: an idempotent command that frees the lock if it still has this token. It is sent at once, and again when
            late copies of the request may have arrived.
        lease: seconds after which it is sent the last time.
    """

    lock_id: LockId
    delete: Command[int]
    lease: float


Handlers: TypeAlias = Mapping[type[Effect[Any]], Callable[[Any], Any]]
"""The function that executes each type of effect."""


class Outage(Protocol):
    """Whether a server can be reached."""

    suspected: bool
    """The last request failed."""


class EffectPerformer(Protocol):
    """Executes effects, with one handler for each type. Asynchronous programs use ``handlers`` for local effects,
    and ``ahandlers``, which return awaitables, for the others."""

    @property
    def handlers(self) -> Handlers:
        """The handlers of a thread, by the type of effect."""

    @property
    def ahandlers(self) -> Handlers:
        """The handlers of a task, which return awaitables, by the type of effect."""


class Performer(EffectPerformer, Protocol):
    """The engine, as primitives use it. The methods here never block."""

    @property
    def tuning(self) -> Tuning:
        """The tunables of the engine."""

    @property
    def queued(self) -> Container[LockId]:
        """The locks for which this process has a waiter."""

    @property
    def prepare(self) -> Callable[[str, tuple[str, ...]], PreparedCommand]:
        """Prepare a command: its name, its keys and the number of its arguments."""

    @property
    def outage(self) -> Outage:
        """The state of the server."""

    def uncontended(self, waiter: Waiter, /) -> bool:
        """Return whether this process has no waiter for the lock and had none lately: then a caller may send its
        request without queueing."""

    def end_uncontended(self, lock_id: LockId, default: None, /) -> Waiter | None:
        """End an uncontended attempt and return its waiter. If that isn't the caller's, others have queued since, so that
        the caller must leave the queue."""

    def may_block(self) -> object:
        """Check that this thread may block.

        Raises:
            SynchronousOnlyOperation: this thread runs an event loop, which must not be blocked.
        """

    def require(self, feature: str, alias: str, /) -> object:
        """Check that the store has a feature.

        Args:
            feature: a word of ``FEATURES``.
            alias: the alias in ``REDIS_LOCKS``, for the message.

        Raises:
            InvalidLockBackend: it hasn't.
        """

    def listen_for(self, lock_id: LockId, /) -> object:
        """Subscribe to messages about a lock, without waiting for it."""

    def watch(
        self, hold: Hold, make_command: Callable[[str, int], Command[bool]], lease: int, granted_for: float = 0.0, /
    ) -> object:
        """Renew a hold from now on, or report its loss when its fixed lease ends.

        Args:
            hold: held weakly.
            make_command: makes the command for a token and a lease in milliseconds.
            lease: milliseconds.
            granted_for: the seconds that are left of the short lease with which the store granted it: the lease is soon
                extended, also if it is fixed; 0 if it has its whole lease.

        Raises:
            LockBackendError: this process can't start a thread.
        """

    def forget_at_end(self, hold: Hold, /) -> object:
        """Forget a hold that isn't renewed when its lease ends, unless its grant is referenced."""

    def unwatch(self, hold: Hold, /) -> object:
        """Stop the renewal of a hold, before its release is sent."""

"""Values of an acquire attempt: the request, the options of the lock, and the verdict of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from os import getpid
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ...core import forks, owners, tokens
from ...core import holder as holders
from ...core.commands import PARSE_ERRORS
from ...core.hold import mint_id
from ...core.queue_values import QueuePosition
from ...core.tuning import BACKEND_WAIT
from .retry import FirstReply, RetryLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.grant import Grant, OnLost
    from ...core.hold import Hold
    from ...core.holder import Holder
    from ...core.prepared import PreparedCommand
    from ...core.queue_values import Waiter

NOT_QUEUED = QueuePosition()

SMALLEST_FENCE: Final = 99
"""Fences are microseconds of a clock. A number as small as this is the answer to something else."""


@dataclass(frozen=True, slots=True)
class LockOptions:
    """The options of a lock, resolved from the settings and the call site.

    Attributes:
        lease: milliseconds.
        wait: seconds; infinity waits for ever.
        renew_for: seconds for which the lease is renewed after it was acquired; 0 if not at all.
        max_hold: the same, if the call site gave it; it is stored with the holder.
        note: the text that the call site stores with the holder.
        wait_for_parent: a caller may wait for the lock of the task or thread that started it.
        fail_open: return an unprotected grant while the store is down.
        index: list the lock among the held ones.
        metadata: which fields of the holder are stored.
        database: the alias of the database whose open transaction keeps a released lock; "" for none.
        after_release: called with the name when a thread has freed the lock.
        auto_release: False leaves the lock until its lease ends; this process forgets it at once.
        backend_wait: seconds for which a server that can't be reached is asked again.
        replicas: the number of replicas that must have a lock before its caller gets it.
        fenced: grants have a fence.
        acquire_limits: retry limits of an acquire: it waits for a store that refuses, unless ``fail_open``.
        call_limits: retry limits of release, extend, inspection and forced release.
    """

    lease: int
    wait: float
    renew_for: float
    fail_open: bool
    index: bool
    metadata: tuple[str, ...]
    on_lost: OnLost
    database: str = ""
    after_release: Callable[[str], object] | None = None
    auto_release: bool = True
    backend_wait: float = BACKEND_WAIT
    max_hold: float | None = None
    note: str | None = None
    wait_for_parent: bool = False
    replicas: int = 0
    fenced: bool = True
    acquire_limits: RetryLimits = field(init=False)
    call_limits: RetryLimits = field(init=False)
    holder_extras: str = field(init=False)
    """What is stored with the holder besides the fields in ``metadata``."""

    def __post_init__(self) -> None:
        backend_wait = self.backend_wait
        object.__setattr__(self, "acquire_limits", RetryLimits(backend_wait, backend_wait if self.fail_open else inf))
        object.__setattr__(self, "call_limits", RetryLimits(backend_wait, backend_wait))
        object.__setattr__(self, "holder_extras", holders.extras(self.max_hold, self.note))


@dataclass(slots=True)
class Granted:
    """The lock was granted. ``free``: it was free before, neither held with this token already nor handed over."""

    fence: int
    free: bool = True
    position: QueuePosition = NOT_QUEUED


def no_holder() -> None:
    """The ``read_holder`` of a verdict without a holder."""
    return


@final
@dataclass(slots=True)
class Busy:
    """Another holder has the lock, for ``lease_left`` more seconds unless it is renewed. ``read_holder`` parses its
    description, which most waiters never need."""

    lease_left: float
    read_holder: Callable[[], Holder | None] = no_holder
    position: QueuePosition = NOT_QUEUED

    @property
    def holder(self) -> Holder | None:
        """The holder; None if the reply doesn't have one, or not a valid one."""
        try:
            return self.read_holder()
        except PARSE_ERRORS:
            return None


@dataclass(frozen=True, slots=True)
class ForeignValue:
    """The key holds ``what``, which is no lock of this kind."""

    what: str


@dataclass(frozen=True, slots=True)
class TooManyPermits:
    """The request is for more permits than the ``limit`` that ``set_limit`` has stored."""

    limit: int


class PreparedCommands(NamedTuple):
    """The commands of the fast path: acquire a lock that is free, and release it."""

    acquire: PreparedCommand
    release: PreparedCommand


class WaitRequest:
    """A request of one caller that may wait."""

    position: QueuePosition | None = None
    """The queue position in the last reply, until it is passed to the queue."""
    waiter: Waiter | None = None
    """To be removed from the queue if the request fails."""
    maybe_executed = False
    """The command may have been executed, or may still be on its way."""
    sent = 0.0
    """When the command was sent before the wait loop began; 0 if it wasn't."""
    first: FirstReply | None = None
    """The reply to that command, until the program takes it."""
    waited = 0.0
    contended = False
    """Other callers of this process wait: this one joins their queue at once."""

    def __init__(self, wait: float, loop: object) -> None:
        self.wait = wait
        self.loop = loop


class AcquireRequest(WaitRequest):
    """A request to acquire. ``token`` is created before the first attempt and reused by its retries."""

    address = ""
    """The address that the last attempt registers; "" for none."""
    block = 0
    """The id of the ``with`` block; 0 if there is none."""
    reentered: Hold | None = None
    """The hold of the caller that this request re-enters."""
    command: PreparedCommand | None = None
    """The command of the straight attempt, if that is to be made."""
    arguments: Any = None
    """Its arguments after the token."""
    # What else is undone if the request fails:
    hold: Hold | None = None
    issued: Grant | None = None

    def __init__(self, wait: float, owner: owners.Owner, loop: object, *, raise_if_busy: bool = False) -> None:
        self.wait = wait  # as WaitRequest does, without the call of super()
        self.loop = loop
        self.owner = owner
        self.raise_if_busy = raise_if_busy
        self.token = tokens.mint_token()
        self.grant_id = mint_id()
        """The id of the grant that is made on success."""


class ClaimRequest(WaitRequest):
    """A request to claim a load.

    Args:
        lease: milliseconds until the claim ends unless it is renewed.
        renew_for: seconds for which the claim is renewed; 0 for no renewal.
        fresh_above: a value with more than these milliseconds left counts as fresh.
        override: 0, ``OVERRIDE_CLAIM`` or ``OVERRIDE_FAILURE``.
        extra_interval: if another caller has the claim, one caller in this number of milliseconds gets
            ``UNCOORDINATED``.
        on_busy: called whenever another caller has the claim.

    Attributes:
        hold: the hold of the claim, if it was granted and is renewed.
    """

    __slots__ = ("busy", "extra_interval", "fresh_above", "hold", "lease", "on_busy", "override", "renew_for", "token")

    def __init__(
        self,
        wait: float,
        loop: object,
        *,
        lease: int,
        renew_for: float = 0.0,
        fresh_above: int,
        override: int = 0,
        extra_interval: int | None = None,
        on_busy: Callable[[], object] | None = None,
        token: str = "",
    ) -> None:
        self.wait = wait  # as WaitRequest does, without the call of super()
        self.loop = loop
        self.lease = lease
        self.renew_for = renew_for
        self.fresh_above = fresh_above
        self.override = override
        self.extra_interval = extra_interval
        self.on_busy = on_busy
        self.busy = False
        self.hold: Hold | None = None
        if getpid() != forks.known_pid:
            forks.pid()
        self.token = token or tokens.mint_token()

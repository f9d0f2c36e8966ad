"""What a kind of lock defines: the command of each step. The programs of acquire, release and extend use nothing else of
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Command
    from ...core.hold import Hold
    from ...core.queue_values import Attempt
    from .requests import PreparedCommands

FENCE_REQUESTED = 3
"""The reply to a forced release when the holding process was asked for its fence."""


class LockSteps(Protocol):
    """The steps of one lock in the store. None of them has state: a step may be repeated without another effect."""

    @property
    def shares_line(self) -> bool:
        """Whether the waiters of a loop, or all threads, share one place in the store's wait queue, and hand the lock over
        to each other. Otherwise the store knows each waiter, and grants the lock to exactly that one."""

    @property
    def exclusive(self) -> bool:
        """Whether an owner may have one hold at a time. Then a second acquire enters that hold again, or raises."""

    @property
    def role(self) -> str:
        """The side of a lock that has two sides under one key, such as ``READ``; "" for other kinds."""

    @property
    def hold_type(self) -> type[Hold]:
        """The class of its holds."""

    @property
    def terms(self) -> tuple[str | int, ...]:
        """The arguments of an acquire that follow the holder."""

    @property
    def grant_terms(self) -> str:
        """What follows the lease in the address of a waiter."""

    @property
    def prepared(self) -> PreparedCommands | None:
        """The commands of the straight acquire and release, since their first use."""

    def prepare(self) -> PreparedCommands:
        """Prepare these commands, and keep them."""

    @property
    def kind(self) -> str:
        """The kind of lock, as in the store."""

    @property
    def release_keys(self) -> tuple[str, ...]:
        """The keys of a command that frees the lock."""

    def acquire(self, token: str, holder: str, attempt: Attempt) -> Command[Any]:
        """Acquire the lock with a token, or register the waiter of the attempt. Its reply is ``Granted``, ``Busy``,
        ``ForeignValue`` or ``TooManyPermits``."""

    def release(self, token: str, address: str = "") -> Command[int]:
        """Its reply is 0: not held with this token, 1: freed, or 2: granted to a waiter, perhaps of this process.
        ``address``, if any, is registered before that, behind all other waiters."""

    def clean_up(self, token: str, address: str) -> Command[int]:
        """As ``release``; also removes ``address``, which has this token, from the store's wait queue."""

    def renew(self, token: str, lease: int) -> Command[bool]:
        """Extend the lease. Its reply is whether the lock is held with this token. ``own_keys`` of the command says how
        the renewals of several locks are merged."""

    def adopt(self, hold: Hold, holder: str) -> Callable[[str, int], Command[bool]]:
        """Return a function like ``renew``, for a hold that was handed over within this process or granted to it as a
        waiter, so that the store may not know its holder yet. From then on the next hold has to send a request.
        ``holder`` is the description that is stored."""

    def transfer(
        self, token: str, next_token: str, lease: int, may_shorten: bool, holder: str, fence: int = 0, age: int = 0
    ) -> Command[int]:
        """Give a held lock another token. Its reply is the fence, also if the lock has that token already; or 0.

        Args:
            token: the token that the lock has.
            next_token: the token that it gets.
            lease: milliseconds from now, after which the lease ends at the earliest.
            may_shorten: whether it ends then, also if that is earlier. Only safe while no process relies on the lease.
            holder: the description that is stored.
            fence: of the hold; 0 for the stored one.
            age: milliseconds since the lock was acquired.
        """

    def inspect(self) -> Command[Any]:
        """Its reply is the holder, None for a free lock, or what else the key holds; of permits a ``PermitState``."""

    def force_release(self, fence: int | None, request_fence: bool) -> Command[int]:
        """As ``release``. Its reply is ``FENCE_REQUESTED`` if ``request_fence`` is set and the fence in the store may
        be older than the holder's: the holder's process is then asked for it."""

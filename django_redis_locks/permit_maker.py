"""``PermitMaker``: the methods that make locks with several holders, with their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from .core.arguments import refuse_unknown
from .mutex_maker import ARGUMENTS

if TYPE_CHECKING:
    from .core.durations import Duration
    from .core.grant import OnLost
    from .mutex_maker import HoldUntil, OnBackendError, Options
    from .primitives.rwlock import ReadWriteLock
    from .primitives.semaphore import Semaphore


class PermitMaker:
    """The methods that make locks with several holders."""

    def _make_semaphore(self, key: str, limit: int, name: str | None, options: Options, on_lost: OnLost) -> Semaphore:
        raise NotImplementedError

    def _make_rwlock(self, key: str, name: str | None, options: Options, on_lost: OnLost) -> ReadWriteLock:
        raise NotImplementedError

    def semaphore(
        self,
        key: str,
        limit: int,
        *,
        expire: Duration | None = None,
        wait: Duration | None = None,
        renew: bool | None = None,
        max_hold: Duration | None = None,
        name: str | None = None,
        note: str | None = None,
        on_lost: OnLost = None,
        on_backend_error: OnBackendError | None = None,
        hold: HoldUntil | None = None,
        hold_using: str | None = None,
        auto_release: bool = True,
        **unknown: Never,
    ) -> Semaphore:
        """Return a semaphore: at most ``limit`` permits are held at a time, on all hosts. First come, first served; a
        crash gives back what its process held. It can't share a key with another kind of lock. Nothing is acquired yet.

        Args:
            key: the key of the semaphore.
            limit: the number of permits. Let all clients name the same one. If they don't, the smallest one of the
                holders counts, and a warning is logged; ``set_limit()`` changes it for all of them.
            expire: the lease of each hold in seconds. Given here it is fixed, unless ``renew=True``: the permits are free
                after that time. By default the settings' ``EXPIRE``, renewed while the holder runs.
            wait: seconds that ``acquire()`` and ``with`` wait for permits; -1 for ever, 0 makes one attempt.
            renew: whether the lease is renewed while the permits are held.
            max_hold: the largest number of seconds for which the lease is renewed; -1 for ever, by default the settings'
                ``MAX_HOLD``.
            name: the label in settings, messages and metrics; by default the key up to its first colon.
            note: a text of at most 200 bytes that is stored with the holder, for operators: see ``Holder.note``.
            on_lost: called with the grant when the lease is lost, in a thread for such calls, or in the loop of the
                task that acquired it; ``"cancel"`` cancels that task.
            on_backend_error: if the store is down, ``"closed"`` raises and ``"open"`` continues without permits.
            hold: if a transaction is open at the release, ``"transaction"`` keeps the permits until its COMMIT or
                ROLLBACK, and ``"block"`` doesn't. By default as ``"block"``, with a warning in the log.
            hold_using: the database of that transaction; by default ``"default"``.
            auto_release: False keeps the permits until their lease ends, for work that may be begun ``limit`` times in
                ``expire`` seconds. The end of the lease is no loss. Use ``acquire()``, not a block; ``grant.release()``
                releases them early.

        Returns:
            The semaphore. It is cheap; make one for each use.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: an argument is out of its range: ``limit`` is at least 1, and ``max_hold`` isn't shorter than the
                lease.
            TypeError: an unknown argument, ``max_hold`` without renewal, or ``auto_release=False`` without ``expire``,
                or with ``renew``, ``on_lost`` or ``hold``.
            InvalidLockBackend: the store of the alias has no semaphores.

        Example::

            with locks.semaphore("geocoder", limit=5, wait=30):
                geocode(address)
        """
        if unknown:
            refuse_unknown(
                unknown, "a semaphore", ("limit", *(name for name in ARGUMENTS if name != "wait_for_parent"))
            )
        options = expire, wait, renew, on_backend_error, hold, hold_using, auto_release, max_hold, False, note
        return self._make_semaphore(key, limit, name, options, on_lost)

    def rwlock(
        self,
        key: str,
        *,
        expire: Duration | None = None,
        wait: Duration | None = None,
        renew: bool | None = None,
        max_hold: Duration | None = None,
        name: str | None = None,
        note: str | None = None,
        on_lost: OnLost = None,
        on_backend_error: OnBackendError | None = None,
        hold: HoldUntil | None = None,
        hold_using: str | None = None,
        auto_release: bool = True,
        wait_for_parent: bool = False,
        **unknown: Never,
    ) -> ReadWriteLock:
        """Return a read-write lock: many callers hold its ``read`` at a time, or one holds its ``write``, on all hosts.
        First come, first served, so that a waiting writer stops new readers. Each side is re-entrant, and the writer may
        read. It can't share a key with another kind of lock. Nothing is acquired yet.

        Args:
            key: the key to lock.
            expire: the lease of each hold in seconds. Given here it is fixed, unless ``renew=True``: the lock is free
                after that time. By default the settings' ``EXPIRE``, renewed while the holder runs.
            wait: seconds that ``acquire()`` and ``with`` wait for a side; -1 for ever, 0 makes one attempt.
            renew: whether the lease is renewed while a side is held.
            max_hold: the largest number of seconds for which the lease is renewed; -1 for ever, by default the settings'
                ``MAX_HOLD``.
            name: the label in settings, messages and metrics; by default the key up to its first colon.
            note: a text of at most 200 bytes that is stored with the holder, for operators: see ``Holder.note``.
            on_lost: called with the grant when the lease is lost, in a thread for such calls, or in the loop of the
                task that acquired it; ``"cancel"`` cancels that task.
            on_backend_error: if the store is down, ``"closed"`` raises and ``"open"`` continues without a lock.
            hold: if a transaction is open at the release, ``"transaction"`` keeps the lock until its COMMIT or
                ROLLBACK, and ``"block"`` doesn't. By default as ``"block"``, with a warning in the log.
            hold_using: the database of that transaction; by default ``"default"``.
            auto_release: False keeps a side until its lease ends. The end of the lease is no loss. Use ``acquire()``, not
                a block; ``grant.release()`` releases it early.
            wait_for_parent: True lets a task, or a thread with its context, wait for the lock while the task or thread
                that started it holds the lock, instead of raising ``LockAlreadyHeld``. For one that its parent doesn't
                wait for.

        Returns:
            The two locks. They are cheap; make them for each use.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: an argument is out of its range, or ``max_hold`` is shorter than the lease.
            TypeError: an unknown argument, ``max_hold`` without renewal, or ``auto_release=False`` without ``expire``,
                or with ``renew``, ``on_lost`` or ``hold``.
            InvalidLockBackend: the store of the alias has no read-write locks.

        Example::

            with locks.rwlock("catalogue", wait=10).read:
                show_prices()

            with locks.rwlock("catalogue", wait=10).write as grant:
                change_prices(fence=grant.fence)
        """
        if unknown:
            refuse_unknown(unknown, "a read-write lock", ARGUMENTS)
        options = expire, wait, renew, on_backend_error, hold, hold_using, auto_release, max_hold, wait_for_parent, note
        return self._make_rwlock(key, name, options, on_lost)

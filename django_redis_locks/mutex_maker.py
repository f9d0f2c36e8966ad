"""``MutexMaker``: the methods that make locks with one holder, with their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Never, TypeAlias

from .core.arguments import refuse_unknown

if TYPE_CHECKING:
    from .conf.decorator_options import LockKind
    from .core.durations import Duration
    from .core.grant import OnLost
    from .primitives.lock import Lock

HoldUntil: TypeAlias = Literal["block", "transaction"]

OnBackendError: TypeAlias = Literal["closed", "open"]

Options: TypeAlias = (
    "tuple[Duration | None, Duration | None, bool | None, OnBackendError | None, HoldUntil | None, str | None, bool, "
    "Duration | None, bool, str | None]"
)
"""The options of a call site: ``expire``, ``wait``, ``renew``, ``on_backend_error``, ``hold``, ``hold_using``, None if not
given; ``auto_release``; ``max_hold``, None if not given; ``wait_for_parent``; and ``note``, None if not given. A plain tuple,
because one is made for each lock."""

ARGUMENTS = (
    "expire",
    "wait",
    "renew",
    "max_hold",
    "on_lost",
    "on_backend_error",
    "hold",
    "hold_using",
    "auto_release",
    "wait_for_parent",
    "name",
    "note",
)


class MutexMaker:
    """The methods that make locks with one holder."""

    def _make(
        self, key: str, name: str | None, options: Options, on_lost: OnLost, reentrant: bool, kind: LockKind = "lock"
    ) -> Lock:
        raise NotImplementedError

    def lock(
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
    ) -> Lock:
        """Return a mutex: one holder at a time, on all hosts; not re-entrant. Nothing is acquired yet.

        Args:
            key: the key to lock.
            expire: the lease in seconds. Given here it is fixed, unless ``renew=True``: the lock is free after that
                time. By default the settings' ``EXPIRE``, renewed while the holder runs.
            wait: seconds that ``acquire()`` and ``with`` wait for the lock; -1 for ever, 0 makes one attempt.
            renew: whether the lease is renewed while the lock is held.
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
            auto_release: False keeps the lock until its lease ends, for work that may be done once in ``expire``
                seconds. The end of the lease is no loss. Use ``acquire()``, not a block; ``grant.release()`` releases
                it early.
            wait_for_parent: True lets a task, or a thread with its context, wait for the lock while the task or thread
                that started it holds the lock, instead of raising ``LockAlreadyHeld``. For one that its parent doesn't
                wait for.

        Returns:
            The lock. It is cheap; make one for each use.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: an argument is out of its range, or ``max_hold`` is shorter than the lease.
            TypeError: an unknown argument, ``max_hold`` without renewal, or ``auto_release=False`` without ``expire``,
                or with ``renew``, ``on_lost`` or ``hold``.

        Example::

            with locks.lock(f"order:{order_id}", wait=5):
                charge(order_id)

            if locks.lock(f"sms:{phone}", expire=60, auto_release=False).acquire(timeout=0):
                send_sms(phone)
        """
        if unknown:
            refuse_unknown(unknown, "a lock", ARGUMENTS)
        return self._make(
            key,
            name,
            (expire, wait, renew, on_backend_error, hold, hold_using, auto_release, max_hold, wait_for_parent, note),
            on_lost,
            False,
        )

    def rlock(
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
        wait_for_parent: bool = False,
        **unknown: Never,
    ) -> Lock:
        """Return a re-entrant mutex: the thread or task that holds it may acquire it again, without a request, and the
        last release frees it. It excludes ``lock`` of the same key. Nothing is acquired yet.

        Args:
            key: the key to lock.
            expire: the lease in seconds. Given here it is fixed, unless ``renew=True``: the lock is free after that
                time. By default the settings' ``EXPIRE``, renewed while the holder runs.
            wait: seconds that ``acquire()`` and ``with`` wait for the lock; -1 for ever, 0 makes one attempt.
            renew: whether the lease is renewed while the lock is held.
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
            wait_for_parent: True lets a task, or a thread with its context, wait for the lock while the task or thread
                that started it holds the lock, instead of raising ``LockAlreadyHeld``. For one that its parent doesn't
                wait for.

        Returns:
            The lock. It is cheap; make one for each use.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: an argument is out of its range, or ``max_hold`` is shorter than the lease.
            TypeError: an unknown argument, or ``max_hold`` without renewal.

        Example::

            def transfer(account):
                with locks.rlock(f"account:{account.pk}"):
                    audit(account)  # which enters the lock of the account once more
        """
        if unknown:
            refuse_unknown(unknown, "an rlock", [name for name in ARGUMENTS if name != "auto_release"])
        options = expire, wait, renew, on_backend_error, hold, hold_using, True, max_hold, wait_for_parent, note
        return self._make(key, name, options, on_lost, True)

    def fair_lock(
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
    ) -> Lock:
        """Return a mutex that is granted in the order in which the requests of its callers arrive at the store: first
        come, first served, among all processes, threads and tasks, also if the caller that waited longest is one of this
        process. It isn't re-entrant. Nothing is acquired yet.

        A caller's place is given by the arrival of its first request, so a caller that asks before another one isn't
        always first: its request may take longer. A waiter that has died, given up or been cancelled is skipped; one of
        a stopped process, or of a lost host, delays the others for three seconds at most. A lock that is free while
        callers wait, because a lease has ended, goes to the first of them, not to a new caller.

        ``lock`` and ``rlock`` of the same key are the same lock. Their callers pass it on within their process first, so
        that it is fair only if all of its users call ``fair_lock``. It costs what ``lock`` does as long as no caller
        waits; otherwise each pass takes two requests, also within one process.

        Args:
            key: the key to lock.
            expire: the lease in seconds. Given here it is fixed, unless ``renew=True``: the lock is free after that
                time. By default the settings' ``EXPIRE``, renewed while the holder runs.
            wait: seconds that ``acquire()`` and ``with`` wait for the lock; -1 for ever, 0 makes one attempt.
            renew: whether the lease is renewed while the lock is held.
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
            auto_release: False keeps the lock until its lease ends, for work that may be done once in ``expire``
                seconds. The end of the lease is no loss. Use ``acquire()``, not a block; ``grant.release()`` releases
                it early.
            wait_for_parent: True lets a task, or a thread with its context, wait for the lock while the task or thread
                that started it holds the lock, instead of raising ``LockAlreadyHeld``. For one that its parent doesn't
                wait for.

        Returns:
            The lock. It is cheap; make one for each use.

        Raises:
            LockKeyError: not a str, or empty.
            InvalidLockBackend: the store of the alias has no fair locks.
            ValueError: an argument is out of its range, or ``max_hold`` is shorter than the lease.
            TypeError: an unknown argument, ``max_hold`` without renewal, or ``auto_release=False`` without ``expire``,
                or with ``renew``, ``on_lost`` or ``hold``.

        Example::

            with locks.fair_lock("printer", wait=60):
                print_document()
        """
        if unknown:
            refuse_unknown(unknown, "a fair lock", ARGUMENTS)
        options = expire, wait, renew, on_backend_error, hold, hold_using, auto_release, max_hold, wait_for_parent, note
        return self._make(key, name, options, on_lost, False, "fair")

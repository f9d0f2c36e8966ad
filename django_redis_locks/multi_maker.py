"""``MultiMaker``: the method that makes locks of several locks, with its arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Never, cast

from .core.arguments import refuse_unknown
from .core.durations import wait_seconds
from .core.errors import LockKeyError
from .engine.on_lost import MemberLoss
from .lock_options import validate_on_lost
from .primitives.multi_lock import MultiLock
from .primitives.shared.base_lock import BaseLock
from .primitives.shared.multi_steps import group_of

if TYPE_CHECKING:
    from .core.durations import Duration
    from .core.grant import OnLost
    from .mutex_maker import HoldUntil, OnBackendError
    from .primitives.lock import Lock

MOST: Final = 100
"""The largest number of locks: some tenths of a millisecond of the server's time."""

_ARGUMENTS: Final = (
    "expire",
    "wait",
    "renew",
    "max_hold",
    "on_lost",
    "on_backend_error",
    "hold",
    "hold_using",
    "wait_for_parent",
    "note",
)


class MultiMaker:
    """The method that makes locks of several locks."""

    if TYPE_CHECKING:

        def lock(self, key: str, **options: Any) -> Lock: ...  # noqa: D102 - of MutexMaker

    def multi_lock(
        self,
        *keys: str | BaseLock,
        expire: Duration | None = None,
        wait: Duration | None = None,
        renew: bool | None = None,
        max_hold: Duration | None = None,
        note: str | None = None,
        on_lost: OnLost = None,
        on_backend_error: OnBackendError | None = None,
        hold: HoldUntil | None = None,
        hold_using: str | None = None,
        wait_for_parent: bool = False,
        **unknown: Never,
    ) -> MultiLock:
        """Return a lock of several keys, which are acquired all or none, and released together. While it waits for one of
        them it keeps none of the others, so that callers that name the keys in other orders don't block each other. Its
        grant has ``fences[key]``, and is lost if one of the locks is. Nothing is acquired yet.

        Args:
            *keys: up to 100 keys. Each is locked as by ``lock()``. Or lock objects, also of other kinds and aliases, such as
                ``locks.rwlock(key).read`` or ``locks["reports"].lock(key)``: they keep their own options, but for ``wait``.
            expire: the lease of the keys in seconds. Given here it is fixed, unless ``renew=True``: the locks are free after
                that time. By default the settings' ``EXPIRE``, renewed while the holder runs.
            wait: seconds that ``acquire()`` and ``with`` wait for all locks together; -1 for ever, 0 makes one attempt. By
                default the shortest ``wait`` of the locks.
            renew: whether the leases of the keys are renewed while the locks are held.
            max_hold: the largest number of seconds for which the leases of the keys are renewed; -1 for ever, by default the
                settings' ``MAX_HOLD``.
            note: a text of at most 200 bytes that is stored with the holder of the keys, for operators: see ``Holder.note``.
            on_lost: called with the grant of all locks when the first one is lost, in a thread for such calls, or in the loop
                of the task that acquired them; ``"cancel"`` cancels that task. A lock object's own ``on_lost`` is called,
                too, with the grant of that lock.
            on_backend_error: if the store is down, ``"closed"`` raises and ``"open"`` continues without any lock. With lock
                objects, it is open if it is open for all locks.
            hold: if a transaction is open at the release, ``"transaction"`` keeps the locks of the keys until its COMMIT or
                ROLLBACK, and ``"block"`` doesn't. By default as ``"block"``, with a warning in the log.
            hold_using: the database of that transaction; by default ``"default"``.
            wait_for_parent: True lets a task, or a thread with its context, wait for the keys while the task or thread that
                started it holds one of them, instead of raising ``LockAlreadyHeld``.

        Returns:
            The lock. It is cheap; make one for each use.

        Raises:
            LockKeyError: there is no key, or there are more than 100, or two of them are the same lock, or have the same
                name in ``fences``; or one isn't a str, or empty.
            InvalidLockBackend: the store of an alias has no multi locks.
            ValueError: an argument is out of its range, or ``max_hold`` is shorter than the lease.
            TypeError: a lock object that can't be a part, such as one with ``auto_release=False``; an unknown argument; or
                ``max_hold`` without renewal.

        Example::

            with locks.multi_lock(f"account:{payer}", f"account:{payee}", wait=5) as grant:
                transfer(payer, payee, fences=grant.fences)
        """
        if unknown:
            refuse_unknown(unknown, "a multi lock", _ARGUMENTS)
        validate_on_lost(on_lost)
        options: dict[str, Any] = {
            "expire": expire,
            "renew": renew,
            "max_hold": max_hold,
            "note": note,
            "on_backend_error": on_backend_error,
            "hold": hold,
            "hold_using": hold_using,
            "wait_for_parent": wait_for_parent,
        }
        locks = _checked([key if isinstance(key, BaseLock) else self._of_key(key, options) for key in keys])
        shortest = min(lock.options.wait for lock in locks)
        members = [_member(lock, on_lost) for lock in locks]
        cancels = "cancel" in (on_lost, *(lock.options.on_lost for lock in locks))
        return MultiLock(members, shortest if wait is None else wait_seconds(wait), cancels)

    def _of_key(self, key: Any, options: dict[str, Any]) -> Lock:
        if not isinstance(key, str):
            advice = ": write multi_lock(*keys)" if isinstance(key, list | tuple | set) else ""
            advice = "; of a read-write lock its side read or write" if hasattr(key, "write") else advice
            raise LockKeyError(f"a part of a multi lock is a key, a str, or a lock, not {type(key).__name__}{advice}")
        return self.lock(key, **options)


def _checked(locks: list[BaseLock]) -> list[BaseLock]:
    """Return the locks in the order in which they are attempted: those that one command acquires are together."""
    if not 1 <= len(locks) <= MOST:
        raise LockKeyError(f"a multi lock has 1 to {MOST} keys, not {len(locks)}")
    seen: dict[object, BaseLock] = {}
    for lock in locks:
        if not lock.options.auto_release:
            raise TypeError(f"lock {lock.name!r} has auto_release=False: no grant releases it, so it can't be a part")
        if seen.setdefault(lock.lock_id, lock) is not lock:
            raise LockKeyError(f"two parts are the same lock {lock.name!r}", **lock.spec.error_context)
        if seen.setdefault(lock.key, lock) is not lock:
            raise LockKeyError(
                f"two locks {lock.name!r} have the same key in different stores: fences[key] would name both",
                **lock.spec.error_context,
            )
        lock.performer.require("multi", lock.alias)
    return sorted(locks, key=lambda lock: (group_of(lock.spec) is None, lock.lock_id))


def _member(lock: BaseLock, on_lost: OnLost) -> BaseLock:
    """Return a copy of the lock, which only the multi lock uses, so that it finds its blocks."""
    own = lock.options.on_lost
    if own is None and on_lost is None:
        return replace(lock)
    options = replace(lock.options, on_lost=cast("OnLost", MemberLoss(own, on_lost)))
    return replace(lock, spec=replace(lock.spec, options=options))

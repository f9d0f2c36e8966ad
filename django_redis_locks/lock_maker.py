"""``LockMaker``: the methods that make locks, records and latches, with their arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Never

from .core.arguments import refuse_unknown
from .leader import Leader
from .multi_maker import MultiMaker
from .mutex_maker import MutexMaker
from .permit_maker import PermitMaker
from .primitives.shared.detach import aattach, attach

if TYPE_CHECKING:
    from collections.abc import Callable

    from .core.detached import DetachedHold
    from .core.durations import Duration
    from .core.grant import Grant, OnLost
    from .mutex_maker import OnBackendError
    from .primitives.latch import Latch
    from .primitives.record import RecordRef
    from .primitives.shared.base_lock import BaseLock


class LockMaker(MutexMaker, PermitMaker, MultiMaker):
    """The methods that make locks, records and latches. ``locks`` has them, and each ``locks[alias]``."""

    def _make_record(
        self, key: str, name: str | None, wait: Duration | None, on_backend_error: OnBackendError | None
    ) -> RecordRef:
        raise NotImplementedError

    def _make_latch(self, key: str, name: str | None) -> Latch:
        raise NotImplementedError

    def latch(self, key: str, *, name: str | None = None, **unknown: Never) -> Latch:
        """Return a countdown latch: callers wait until a count, which others count down, is 0. It can't share a key with a
        lock or a record. Nothing is set yet.

        Args:
            key: the key of the latch.
            name: the label in settings and messages; by default the key up to its first colon.

        Returns:
            The latch. It is cheap; make one for each use.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: ``name`` isn't a str.
            InvalidLockBackend: the store of the alias has no latches.
            TypeError: an unknown argument.

        Example::

            latch = locks.latch("import:2026-11")
            latch.try_set(3)  # three workers count it down
            latch.wait()
        """
        if "expire" in unknown:
            raise TypeError("a latch has no argument 'expire'; it is an argument of try_set(n, expire=...)")
        if unknown:
            refuse_unknown(unknown, "a latch", ["name"])
        return self._make_latch(key, name)

    def record(
        self,
        key: str,
        *,
        name: str | None = None,
        wait: Duration | None = None,
        on_backend_error: OnBackendError | None = None,
    ) -> RecordRef:
        """Return a record: a small value with a version and a lease, changed by compare-and-set. It can't share a key
        with a lock. Nothing is read yet.

        Args:
            key: the key of the value.
            name: the label in settings, messages and metrics; by default the key up to its first colon.
            wait: seconds for which a request is repeated while the store refuses it.
            on_backend_error: ``"open"`` repeats it for ``BACKEND_WAIT`` seconds at most. It raises in both cases.

        Returns:
            The reference to the record. It is cheap; make one for each use.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: an argument is out of its range.
            InvalidLockBackend: the store of the alias has no records.

        Example::

            state = locks.record("deploy:production").get()
        """
        return self._make_record(key, name, wait, on_backend_error)

    def _attachable(self, text: str, on_lost: OnLost) -> tuple[BaseLock, DetachedHold]:
        raise NotImplementedError

    def attach(self, text: str, *, on_lost: OnLost = None) -> Grant:
        """Take over the hold that ``grant.detach()`` has detached, for the calling thread. The grant is as if it was
        acquired here: it has the same key, name and fence, and its lease begins now and is renewed if it was. One round
        trip.

        Args:
            text: the text that ``detach()`` returned. It is good for one attach.
            on_lost: as for ``lock()``. That of the lock that was detached stays in its process.

        Returns:
            The grant.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``aattach()``.
            LockLost: the text was used before, its lease has ended, or the lock was released by force.
            LockBackendError: the store can't be reached. The text stays usable: if it was attached after all, that is
                undone in the background.
            ValueError: the text is damaged, comes from elsewhere, or is that of another alias.
            TypeError: the text is no str.
            InvalidLockBackend: the store of the alias has no detached holds.

        Example::

            @shared_task
            def export(pk, text):
                with locks.attach(text) as grant:
                    write_export(pk, fence=grant.fence)
        """
        return attach(*self._attachable(text, on_lost))

    async def aattach(self, text: str, *, on_lost: OnLost = None) -> Grant:
        """Take over the hold that ``grant.detach()`` has detached, for the running task. The grant is as if it was
        acquired here: it has the same key, name and fence, and its lease begins now and is renewed if it was. One round
        trip.

        Args:
            text: the text that ``detach()`` returned. It is good for one attach.
            on_lost: as for ``lock()``. That of the lock that was detached stays in its process.

        Returns:
            The grant.

        Raises:
            LockLost: the text was used before, its lease has ended, or the lock was released by force.
            LockBackendError: the store can't be reached. The text stays usable: if it was attached after all, that is
                undone in the background.
            ValueError: the text is damaged, comes from elsewhere, or is that of another alias.
            TypeError: the text is no str.
            InvalidLockBackend: the store of the alias has no detached holds.
        """
        return await aattach(*self._attachable(text, on_lost))

    def leader(
        self,
        key: str,
        on_elected: Callable[[Grant], object],
        on_lost: Callable[[Grant], object] | None = None,
        *,
        expire: Duration | None = None,
        name: str | None = None,
        note: str | None = None,
    ) -> Leader:
        """Return a candidate for the leadership of all candidates with this key, in all processes: one of them leads, and
        another one takes over when that ends or dies. ``run()`` or ``arun()`` campaigns; nothing is acquired yet.

        Args:
            key: the key, which is that of a lock.
            on_elected: called with the grant when this candidate leads, in the thread or task of the campaign. It does
                the leader's work while ``leader.leading``, or starts it and returns. For ``arun()`` it may be an async
                function.
            on_lost: called with the grant when the leadership has ended, once after each ``on_elected``: when a loss is
                noticed, in a thread for such calls or in the loop of the task; or before it is given up, in the campaign.
                It stops what ``on_elected`` has started, and doesn't block: the candidate campaigns again when it has
                returned. For ``arun()`` it may be an async function.
            expire: the lease in seconds, which is renewed without end: a dead leader is replaced after it. By default
                the settings' ``EXPIRE``.
            name: the label in settings, messages and metrics; by default the key up to its first colon.
            note: a text of at most 200 bytes that is stored with the holder, for operators: see ``Holder.note``.

        Returns:
            The candidate.

        Raises:
            LockKeyError: not a str, or empty.
            ValueError: an argument is out of its range, or isn't callable.

        Example::

            leader = locks.leader("scheduler", on_elected=start_scheduler, on_lost=stop_scheduler)
            leader.run()
        """
        make_lock = partial(
            self.lock, key, expire=expire, renew=True, max_hold=-1, name=name, note=note, on_backend_error="closed"
        )
        return Leader(make_lock, on_elected, on_lost)

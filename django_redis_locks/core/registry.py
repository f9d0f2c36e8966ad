"""The grants of this process that aren't released.

The registry keeps the grants of every owner for as long as that owner lives, and then lets go; what is left then is
the user's own reference. Renewal follows reachability, so a grant that nobody can release any more ends with its lease.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from . import contexts, forks
from .hold import State
from .owners import current_owner, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .grant import Grant
    from .hold import Hold
    from .keys import LockId


forget_block = contexts.remove
"""The block never began, or its end was interrupted."""


def end_block(lock: object, block: int) -> Grant | None:
    """The innermost ``with`` block of this lock object ends: the grant it began with. Another object for the same key has
    blocks of its own, and so has each generator. None if it began in another context."""
    for entry in contexts.entries():
        if not isinstance(entry, int) and entry.lock is lock and entry._block == block:
            contexts.remove(entry)
            return entry
    return None


_tuple = tuple.__new__


class Registry:
    """The grants of this process that aren't released, strongly held.

    Its mutex, as those of the queues and the janitor, may be entered again: the collector may choose a moment inside of
    it to end an abandoned generator, whose ``with`` block then releases a lock in this same thread. A signal handler
    may do so too, or raise there: so a grant may be in one table only, and is forgotten by both all the same.
    """

    FEW = 64
    """So many grants may be kept after their leases have ended, in case their owners release them."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._grants: dict[int, Grant] = {}
        self._by_lock: dict[LockId, list[Grant]] = {}
        self.knows: Callable[[LockId], bool] = self._by_lock.__contains__
        """Whether anybody in this process has a grant there."""

    def __len__(self) -> int:
        return len(self._grants)

    def grants(self) -> list[Grant]:
        """Those of all owners."""
        return list(self._grants.values())

    def after_fork_in_child(self) -> None:
        """The parent's grants stay findable, so that a ``with`` of the parent ends quietly in the child, but none of
        them is live here. Another thread may have been at work on the tables when the process forked."""
        self._mutex = threading.RLock()
        self._by_lock.clear()
        for grant in list(self._grants.values()):
            self._by_lock.setdefault(grant.hold.lock_id, []).append(grant)

    def keep(self, grant: Grant, block: int = 0) -> bool:
        """Register a grant of the caller, in its context too; there it stays until its ``block`` ends. Returns whether there
        are so many that it is to be forgotten when its lease ends."""
        lock_id = grant.hold.lock_id
        with self._mutex:
            self._grants[grant.id] = grant
            others = self._by_lock.get(lock_id)
            self._by_lock[lock_id] = [grant] if others is None else [*others, grant]
        count, top = len(self._grants), contexts.top.get()
        if top is not None and top.size > contexts.FEW + 2 * count:
            top = contexts.without_released(self._grants)
        entry = grant if block else grant.id
        contexts.top.set(_tuple(contexts.Link, (entry, top, 1 if top is None else top.size + 1)))
        return count > self.FEW

    def forget(self, grant: Grant) -> None:
        with self._mutex:
            self._forget(grant)
        top = contexts.top.get()
        if top is not None and top.entry == grant.id:  # others are dropped by a later push
            contexts.top.set(top.below)

    @property
    def crowded(self) -> bool:
        """Whether grants are to be forgotten when their leases end."""
        return len(self._grants) > self.FEW

    def forget_unused(self, hold: Hold) -> bool:
        """Its lease is over: let go of the grants that nothing else refers to, neither a block nor a caller's variable.
        False if there are others."""
        lock_id, unused = hold.lock_id, True
        with self._mutex:
            for number in [grant.id for grant in self.at(lock_id) if grant.hold is hold]:
                ref = weakref.ref(self._grants[number])
                self._forget(self._grants[number])
                grant = ref()
                if grant is not None:
                    unused = False
                    self._grants[number] = grant
                    self._by_lock[lock_id] = [grant, *self._by_lock.get(lock_id, ())]
                    del grant
        return unused

    def forget_hold(self, hold: Hold) -> None:
        """Let go of whatever the registry has on a hold: its owner is dead. The block of a generator may go on elsewhere; its
        end, or the collection of the generator, releases it."""
        with self._mutex:
            for grant in self.of_hold(hold):
                if grant._block <= 1:
                    self._forget(grant)

    def of_hold(self, hold: Hold) -> list[Grant]:
        """The grants on a hold, the newest first."""
        return [grant for grant in self.at(hold.lock_id) if grant.hold is hold]

    def newest(self, lock_id: LockId, *, deferred: bool = False) -> Grant | None:
        """The caller's newest grant there that isn't released; it may be lost. With ``deferred`` also the one with which a
        transaction that is open keeps a lock that the caller has released."""
        owner = current_owner()
        for grant in self.at(lock_id):
            if grant.hold.owner() is not owner or grant.hold.state is State.GONE or not contexts.contains(grant):
                continue
            if not grant.deferred or (deferred and grant.waits_for_transaction()):
                return grant
        return None

    def grant_of_with_block(self, lock_id: LockId, lock: object, block: int) -> Grant | None:
        """The grant of this lock object with which a generator's block began, wherever that was. Of others the newest one that
        the caller's thread or task acquired, whatever its context, or one that is dead by now."""
        if block != 1:
            grant = next((grant for grant in self.at(lock_id) if grant.lock is lock and grant._block == block), None)
            if grant is not None:
                grant._block = 0  # the context in which it began still knows it
            return grant
        owner = current_owner()
        for grant in self.at(lock_id):
            if grant.lock is lock and not grant.deferred and (grant.hold.owner() is owner or not is_alive(grant.hold)):
                return grant
        return None

    def why_self_deadlock(self, lock_id: LockId) -> str | None:
        """Why the caller would wait for himself there: one sentence, or None if he wouldn't."""
        owner = current_owner()
        for grant in self.at(lock_id):
            if not grant.hold.live:
                continue
            if grant.hold.owner() is owner:
                return (
                    "this thread holds it, on behalf of another context: they share an executor's thread. "
                    "Use the lock's a-methods, or give each request a thread of its own"
                )
            if contexts.contains(grant):
                return (
                    "the task or thread that started this one holds it. "
                    "Acquire it here alone, or hand the grant down and release it there"
                )
        return None

    def innermost(self) -> Grant | None:
        """The newest grant in the caller's context that isn't released."""
        return next(self.in_context(), None)

    def in_context(self) -> Iterator[Grant]:
        """Those in the caller's context that aren't released, the newest first."""
        for entry in contexts.entries():
            grant = self._grants.get(entry if isinstance(entry, int) else entry.id)
            if grant is not None and not grant.released:
                yield grant

    def at(self, lock_id: LockId) -> list[Grant]:
        """The grants there, the newest first."""
        grants = self._by_lock.get(lock_id)
        return grants[::-1] if grants else []

    def _forget(self, grant: Grant) -> None:
        """Every step may be done again: a signal handler may have raised between any two of them."""
        lock_id = grant.hold.lock_id
        grants = self._by_lock.get(lock_id)
        if grants is not None:
            others = [] if grants == [grant] else [other for other in grants if other is not grant]
            if others:
                self._by_lock[lock_id] = others
            else:
                self._by_lock.pop(lock_id, None)
        self._grants.pop(grant.id, None)


registry = Registry()
"""The grants of this process."""

forks.in_child(registry.after_fork_in_child)

"""The registry of all grants in this process that aren't released.

It references the grants of every owner for as long as the owner lives; afterwards only the user's own references
remain. A hold is renewed while it is reachable, so a grant that can't be released any more ends with its lease.
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
"""Remove the entry of a ``with`` block that never began, or that was interrupted at its end."""


def end_block(lock: object, block: int) -> Grant | None:
    """End the innermost ``with`` block of a lock object and return the block's grant, or None if it began in another
    context. Another object for the same key has blocks of its own, and so has each generator."""
    for entry in contexts.entries():
        if not isinstance(entry, int) and entry.lock is lock and entry._block == block:
            contexts.remove(entry)
            return entry
    return None


_tuple = tuple.__new__


class Registry:
    """The grants of this process that aren't released, with strong references.

    Its mutex is reentrant, as those of the queues and of the maintenance thread: the garbage collector may end an
    abandoned generator while a method runs, and the generator's ``with`` block then releases a lock in the same thread.
    A signal handler may do so too, or raise: a grant may then be in one table only, and is still removed from both.
    """

    FEW = 64
    """The number of grants that may be kept after their leases have ended, in case their owners release them."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._grants: dict[int, Grant] = {}
        self._by_lock: dict[LockId, list[Grant]] = {}
        self.knows: Callable[[LockId], bool] = self._by_lock.__contains__
        """Return whether this process has a grant on a lock."""

    def __len__(self) -> int:
        return len(self._grants)

    def grants(self) -> list[Grant]:
        """Return the grants of all owners."""
        return list(self._grants.values())

    def after_fork_in_child(self) -> None:
        """Keep the parent's grants, so that a ``with`` block of the parent ends in the child without an error; none of
        them is live. The tables are rebuilt, because another thread may have been changing them when the process
        forked."""
        self._mutex = threading.RLock()
        self._by_lock.clear()
        for grant in list(self._grants.values()):
            self._by_lock.setdefault(grant.hold.lock_id, []).append(grant)

    def keep(self, grant: Grant, block: int = 0) -> bool:
        """Register a grant of the caller, also in the caller's context, until its ``block`` ends. Return whether the
        registry is crowded, so that the grant is to be forgotten when its lease ends."""
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
        if top is not None and top.entry == grant.id:  # other entries are removed by a later ``keep``
            contexts.top.set(top.below)

    @property
    def crowded(self) -> bool:
        """Whether grants are to be forgotten when their leases end."""
        return len(self._grants) > self.FEW

    def forget_unused(self, hold: Hold) -> bool:
        """Forget the grants of an ended hold that aren't referenced, neither by a block nor by a variable. Return False
        if others are left."""
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
        """Forget the grants of a hold with a dead owner. The block of a generator may continue in another thread; its
        end, or the collection of the generator, releases it."""
        with self._mutex:
            for grant in self.of_hold(hold):
                if grant._block <= 1:
                    self._forget(grant)

    def of_hold(self, hold: Hold) -> list[Grant]:
        """Return the grants on a hold, the newest first."""
        return [grant for grant in self.at(hold.lock_id) if grant.hold is hold]

    def newest(self, lock_id: LockId, *, deferred: bool = False) -> Grant | None:
        """Return the caller's newest grant on a lock that isn't released; it may be lost. With ``deferred`` also a
        grant with which an open transaction keeps a lock that the caller has released."""
        owner = current_owner()
        for grant in self.at(lock_id):
            if grant.hold.owner() is not owner or grant.hold.state is State.GONE or not contexts.contains(grant):
                continue
            if not grant.deferred or (deferred and grant.waits_for_transaction()):
                return grant
        return None

    def grant_of_with_block(self, lock_id: LockId, lock: object, block: int) -> Grant | None:
        """Return the grant of a ``with`` block that ends outside of its context.

        For the block of a generator, the grant with which it began in any thread; for others the newest one that the
        caller's thread or task acquired in any context, or that belongs to a dead owner.
        """
        if block != 1:
            grant = next((grant for grant in self.at(lock_id) if grant.lock is lock and grant._block == block), None)
            if grant is not None:
                grant._block = 0  # the context in which it began still has it
            return grant
        owner = current_owner()
        for grant in self.at(lock_id):
            if grant.lock is lock and not grant.deferred and (grant.hold.owner() is owner or not is_alive(grant.hold)):
                return grant
        return None

    def why_self_deadlock(self, lock_id: LockId) -> str | None:
        """Return why waiting for a lock would be a self-deadlock of the caller, as a sentence, or None if it
        wouldn't."""
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
        """Return the newest grant in the caller's context that isn't released."""
        return next(self.in_context(), None)

    def in_context(self) -> Iterator[Grant]:
        """Yield the grants in the caller's context that aren't released, the newest first."""
        for entry in contexts.entries():
            grant = self._grants.get(entry if isinstance(entry, int) else entry.id)
            if grant is not None and not grant.released:
                yield grant

    def at(self, lock_id: LockId) -> list[Grant]:
        """Return the grants on a lock, the newest first."""
        grants = self._by_lock.get(lock_id)
        return grants[::-1] if grants else []

    def _forget(self, grant: Grant) -> None:
        """Remove a grant from both tables. A signal handler may raise between any two steps, so each of them is
        repeatable."""
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

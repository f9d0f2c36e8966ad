"""The registry of all grants of this process that aren't released.

It references the grants of an owner until the owner, a thread or task, ends; afterwards only the user's code may
reference them. A hold is renewed while it is referenced, so a lock whose grant can't be released any more ends with its
lease.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from . import forks, grant_stack
from .hold import State
from .owners import current_owner, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from .grant import Grant
    from .hold import Hold
    from .keys import LockId


forget_block = grant_stack.remove
"""Remove the entry of a ``with`` block that never began, or that was interrupted at its end."""


def end_block(lock: object, block: int) -> Grant | None:
    """End the innermost ``with`` block of a lock object in this context and return its grant, or None if the block
    began in another context. Other lock objects for the same key, and each generator, have their own blocks."""
    top = grant_stack.top.get()
    if top is not None:  # the usual case
        entry, below, _ = top
        if not isinstance(entry, int) and entry.lock is lock and entry._block == block:
            grant_stack.top.set(below)
            return entry
    for entry in grant_stack.entries():
        if not isinstance(entry, int) and entry.lock is lock and entry._block == block:
            grant_stack.remove(entry)
            return entry
    return None


class Registry:
    """The grants of this process that aren't released, with strong references.

    Its mutex is reentrant, like those of the queues and of the maintenance thread: while a method runs, the garbage
    collector may end an abandoned generator, whose ``with`` block then releases a lock in the same thread. A signal
    handler may do the same. If it raises, a grant may be in one of the two tables only; ``forget`` handles that.
    """

    FEW = 64
    """The number of grants that may be kept after their leases have ended, in case their owners release them."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._grants: dict[int, Grant] = {}
        self._by_lock: dict[LockId, list[Grant]] = {}
        self.known: Container[LockId] = self._by_lock
        """The locks on which this process has a grant."""
        forks.reset_in_child(self)

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

    def register(self, grant: Grant, block: int = 0) -> bool:
        """Register a grant of the caller, here and in the caller's context. With the id of a ``block``, the context
        references the grant itself until the block ends.

        Returns:
            Whether there are so many grants that this one should be forgotten when its lease ends.
        """
        lock_id, by_lock = grant.hold.lock_id, self._by_lock
        with self._mutex:
            self._grants[grant.id] = grant
            try:
                by_lock[lock_id] = [*by_lock[lock_id], grant] if lock_id in by_lock else [grant]
            except KeyError:  # the garbage collector ran between the two, and released the last other grant
                by_lock[lock_id] = [grant]
        count, top = len(self._grants), grant_stack.top.get()
        if top is not None and top[2] > grant_stack.FEW + 2 * count:
            top = grant_stack.without_released(self._grants)
        grant_stack.top.set((grant if block else grant.id, top, 1 if top is None else top[2] + 1))
        return count > self.FEW

    def forget(self, grant: Grant) -> None:
        """Remove a grant, here and from the top of the caller's context."""
        with self._mutex:
            self._forget(grant)
        top = grant_stack.top.get()
        if top is not None and top[0] == grant.id:  # other entries are removed by a later ``register``
            grant_stack.top.set(top[1])

    @property
    def crowded(self) -> bool:
        """Whether there are so many grants that they should be forgotten when their leases end."""
        return len(self._grants) > self.FEW

    def forget_unused(self, hold: Hold) -> bool:
        """Forget those grants of an ended hold that only the registry references. Return False if others are left."""
        lock_id, all_forgotten = hold.lock_id, True
        with self._mutex:
            for grant_id in [grant.id for grant in self.at(lock_id) if grant.hold is hold]:
                ref = weakref.ref(self._grants[grant_id])
                self._forget(self._grants[grant_id])
                grant = ref()
                if grant is not None:  # a block or a variable references it
                    all_forgotten = False
                    self._grants[grant_id] = grant
                    self._by_lock[lock_id] = [grant, *self._by_lock.get(lock_id, ())]
                    del grant
        return all_forgotten

    def forget_hold(self, hold: Hold) -> None:
        """Forget the grants of a hold whose owner has ended, except those of generators' blocks: another thread may
        continue the generator. The end of the block, or the collection of the generator, releases them."""
        with self._mutex:
            for grant in self.of_hold(hold):
                if grant._block <= 1:
                    self._forget(grant)

    def of_hold(self, hold: Hold) -> list[Grant]:
        """Return the grants on a hold, the newest first."""
        return [grant for grant in self.at(hold.lock_id) if grant.hold is hold]

    def newest(self, lock_id: LockId, role: str | None = None, *, deferred: bool = False) -> Grant | None:
        """Return the caller's newest grant on a lock that isn't released; it may be lost. With ``role``, only those of
        one side of the lock count. With ``deferred``, grants count that the caller has released, but that an open
        transaction keeps."""
        owner = current_owner()
        for grant in self.at(lock_id):
            if role is not None and grant.lock.role != role:
                continue
            if grant.hold.owner() is not owner or grant.hold.state is State.GONE or not grant_stack.contains(grant):
                continue
            if not grant.deferred or (deferred and grant.waits_for_transaction()):
                return grant
        return None

    def grant_of_with_block(self, lock_id: LockId, lock: object, block: int) -> Grant | None:
        """Return the grant of a ``with`` block that ends outside of its context.

        For the block of a generator that is the grant with which the block began, in any thread. For other blocks it is
        the newest such grant of the caller's thread or task in any context, or of an owner that has ended; without one,
        the newest grant of any kind.
        """
        found = [grant for grant in self.at(lock_id) if grant.lock is lock and not grant.deferred]
        if block == 1:
            owner = current_owner()
            found = [grant for grant in found if grant.hold.owner() is owner or not is_alive(grant.hold)]
            found.sort(key=lambda grant: grant._block != 1)
        else:
            found = [grant for grant in found if grant._block == block]
        return found[0] if found else None

    def why_self_deadlock(
        self, lock_id: LockId, waits_for: Callable[[Hold], bool], *, wait_for_parent: bool
    ) -> str | None:
        """Return the reason why a caller that waits for this lock would deadlock with itself, as a sentence; None if it
        wouldn't. It probably does if the task or thread that started it holds the lock, unless ``wait_for_parent``.
        ``waits_for`` returns whether the caller would wait for a hold to end."""
        owner = current_owner()
        for grant in self.at(lock_id):
            if not grant.hold.live or not waits_for(grant.hold):
                continue
            if grant.hold.owner() is owner:
                return (
                    "this thread holds it, on behalf of another context: they share an executor's thread. "
                    "Use the lock's asynchronous methods, such as aacquire, or give each request its own thread"
                )
            if not wait_for_parent and grant_stack.contains(grant):
                return (
                    "the task or thread that started this one holds it. Acquire it only here, or pass the grant to this task "
                    "or thread; one that its parent doesn't wait for may wait: wait_for_parent=True"
                )
        return None

    def innermost(self) -> Grant | None:
        """Return the newest grant in the caller's context that isn't released."""
        return next(self.in_context(), None)

    def in_context(self) -> Iterator[Grant]:
        """Yield the grants in the caller's context that aren't released, the newest first."""
        for entry in grant_stack.entries():
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
        lock_id, by_lock = grant.hold.lock_id, self._by_lock
        if lock_id in by_lock:
            others = [other for other in by_lock[lock_id] if other is not grant] if by_lock[lock_id] != [grant] else []
            if others:
                by_lock[lock_id] = others
            elif lock_id in by_lock:
                del by_lock[lock_id]  # without a call, as all here in the usual case
        if grant.id in self._grants:
            del self._grants[grant.id]


registry = Registry()
"""The grants of this process."""

"""``FairLock``: a mutex that its waiters get in the order of their arrival at the store.

It is the lock of ``locks.lock`` of the same key, with other waiters: ``shared/fair_steps`` says what differs.
"""

from __future__ import annotations

from .lock import Lock


class FairLock(Lock):
    """A mutex that is granted in the order in which the requests of its callers arrive at the store: first come, first
    served, among all processes, threads and tasks. ``locks.fair_lock()`` makes one.

    It has all of ``Lock``: renewal, fencing token, loss notice, ``with`` and ``async with``.

    Example::

        with locks.fair_lock("printer", wait=60) as grant:
            print_document(fence=grant.fence)
    """

    __slots__ = ()

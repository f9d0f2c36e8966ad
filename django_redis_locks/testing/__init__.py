"""Helpers for tests of code that uses locks.

``override_locks`` keeps the locks of all aliases in memory. ``hold_lock`` holds a lock as another owner.
``assert_locked``, ``assert_not_locked`` and ``assert_no_locks_held`` check which locks are held. ``capture_locks``
collects events. ``ManualClock`` lets a lease end or a wait time out without sleeping. Fixtures for pytest are in
``django_redis_locks.testing.fixtures``.
"""

from __future__ import annotations

from .asserting import assert_locked, assert_no_locks_held, assert_not_locked
from .capturing import Captured, capture_locks
from .holding import hold_lock
from .manual_clock import ManualClock
from .overriding import override_locks

__all__ = [
    "Captured",
    "ManualClock",
    "assert_locked",
    "assert_no_locks_held",
    "assert_not_locked",
    "capture_locks",
    "hold_lock",
    "override_locks",
]

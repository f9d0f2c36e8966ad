"""Makes holds without an acquire."""

from __future__ import annotations

import threading
from typing import Any

from django_redis_locks.core.hold import Hold
from django_redis_locks.core.keys import LockId

LEASE = 10_000


def a_hold(lock_id: LockId, sent: float, lease: int = LEASE, owner: Any = None, renew_for: float = 0.0) -> Hold:
    """A hold of this thread, unless an owner is given."""
    names, owner = ("key", "name", "default"), owner or threading.current_thread()
    fixed: dict[str, Any] = {
        "token": "token",
        "grant": 1,
        "fence": 100,
        "loop": None,
        "on_lost": None,
        "outcome_unknown": False,
    }
    return Hold(lock_id, *names, lease=lease, sent=sent, renew_for=renew_for, owner=owner, **fixed)

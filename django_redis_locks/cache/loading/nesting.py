"""Loads inside loads: a loader may ask for other cached values, and for its own. Prevents that loads wait for each other
in a circle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loader import active_loads

if TYPE_CHECKING:
    from ...core.keys import LockId
    from .singleflight import InflightLoad


def is_inside(lock_id: LockId) -> bool:
    """Whether the loader of this value makes the call, directly or indirectly."""
    loads = active_loads.get()
    return bool(loads) and any(outer == lock_id for outer, _ in loads)


def start_following(inflight: InflightLoad) -> list[InflightLoad] | None:
    """Record that all loads inside which the caller runs wait for another load.

    Returns:
        Those loads, for ``stop_following``. None, with nothing recorded, if that other load itself waits for one of
        them: waiting would be a deadlock.
    """
    outer_loads = [outer for _, outer in active_loads.get() if outer is not None]
    # Record before the check: of two callers that start to wait for each other, at least one finds the other
    for outer in outer_loads:
        outer.waits_for.append(inflight)
    if outer_loads and inflight.depends_on(outer_loads):
        stop_following(inflight, outer_loads)
        return None
    return outer_loads


def stop_following(inflight: InflightLoad, outer_loads: list[InflightLoad]) -> None:
    """Undo ``start_following``."""
    for outer in outer_loads:
        outer.waits_for.remove(inflight)

"""What a contender does in a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Plan:
    """How a contender acquires, holds, extends and releases the lock.

    Attributes:
        wait: the longest wait in seconds.
        hold_for: seconds that it holds the lock.
        lease: in seconds.
        extend: the lease in seconds that it extends to after acquiring; 0 doesn't extend.
        acquisitions: how often it acquires.
        retries_release: releases again if a release got no reply, as a caller may.
        loop: None for a thread, or the event loop of a task.
        kind: of the lock: "lock", "fair", "semaphore", or the side "read" or "write" of a read-write lock.
        limit: how many permits a semaphore has.
        permits: how many of them it acquires.
        downgrades: it enters the read side, too, and leaves the write side, before it releases.
        blocked: its loop blocks as soon as it waits, so that it never wakes for its turn.
    """

    wait: float = inf
    hold_for: float = 0.0
    lease: float = 10.3
    extend: float = 0.0
    acquisitions: int = 1
    retries_release: bool = False
    loop: object = None
    kind: str = "lock"
    limit: int = 1
    permits: int = 1
    downgrades: bool = False
    blocked: bool = False

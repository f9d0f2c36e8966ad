"""What contenders do."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Plan:
    """What a contender does.

    Attributes:
        wait: seconds that he is willing to wait.
        stay: seconds that he stays inside.
        lease: seconds.
        extend: to so many seconds he extends his lease as soon as he is inside; 0 if not.
        rounds: how often he comes.
        insists: releases again if a release wasn't answered, as a caller may.
        loop: an event loop, or None for a thread.
        blocked: his loop does something else as soon as he waits, and he never hears that it is his turn.
    """

    wait: float = inf
    stay: float = 0.0
    lease: float = 10.3
    extend: float = 0.0
    schedule: int = 1
    insists: bool = False
    loop: object = None
    blocked: bool = False

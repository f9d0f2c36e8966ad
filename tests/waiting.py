"""Waits, with a timeout, for what another thread does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django_redis_locks import clock

BUSY = 8.0
"""Extra seconds that a busy machine may need. Whatever takes longer hangs."""


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> float:
    """Wait until the condition holds; returns how long it took."""
    begin = clock.now()
    while not condition():
        assert clock.now() - begin < seconds, f"not within {seconds} s"
        time.sleep(0.005)
    return clock.now() - begin


def in_thread(function: Callable[[], object]) -> Any:
    """Call it in another thread and return its result."""
    result: list[object] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join(30)
    return result[0]

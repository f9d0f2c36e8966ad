"""ManualClock inspects the stacks of other threads."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import FrameType

import pytest

from django_redis_locks.testing import ManualClock


def test_frames_of_threads_are_read_with_garbage_collection_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 deadlocks if a threading.local is freed at that time (python/cpython#106883)."""
    current_frames, collected = sys._current_frames, []

    def take() -> dict[int, FrameType]:
        collected.append(gc.isenabled())
        return current_frames()

    monkeypatch.setattr(sys, "_current_frames", take)
    with ThreadPoolExecutor(1) as pool, ManualClock() as clock:
        over = Event()
        pool.submit(over.wait)
        clock.advance(1)
        over.set()
    assert set(collected) == {False}
    assert gc.isenabled()

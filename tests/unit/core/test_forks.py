"""Resets in a forked child."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from django_redis_locks.core import forks
from tests.forks import in_child


def test_reset_that_raises_stops_no_other_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] A connection that stays shared with the parent would be worse than one failed reset."""
    begun: list[str] = []

    def fail() -> None:
        raise ValueError("closed already")

    resets = [lambda: begun.append("first"), fail, lambda: begun.append("last")]
    monkeypatch.setattr(forks, "_aware", [SimpleNamespace(after_fork_in_child=reset) for reset in resets])
    monkeypatch.setattr(forks, "known_pid", -1)
    with pytest.raises(ValueError, match="closed already"):
        forks.pid()
    assert begun == ["first", "last"]
    assert forks.known_pid == os.getpid()


def test_reset_that_is_interrupted_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] A signal handler may raise before the tokens are reset."""
    aware = Mock()
    aware.after_fork_in_child.side_effect = [KeyboardInterrupt, None]
    monkeypatch.setattr(forks, "_aware", [aware])
    monkeypatch.setattr(forks, "known_pid", -1)
    with pytest.raises(KeyboardInterrupt):
        forks.pid()
    assert forks.pid() == forks.known_pid == os.getpid()
    assert aware.after_fork_in_child.call_count == 2


def test_fork_safe_lock_held_by_another_thread_of_the_parent_is_free_in_the_child() -> None:
    """[H18] The thread that would release it doesn't exist in the child."""
    lock = forks.ForkSafeLock()
    with ThreadPoolExecutor(1) as other:
        other.submit(lock.rlock.acquire).result()

        def child() -> None:
            assert lock.rlock.acquire(blocking=False)

        in_child(child)

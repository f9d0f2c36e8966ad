"""Fixtures for pytest. Name this module in your ``conftest.py``::

pytest_plugins = ["django_redis_locks.testing.fixtures"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .asserting import assert_none, held_here
from .capturing import Captured, capture_locks
from .manual_clock import ManualClock
from .overriding import override_locks


@pytest.fixture
def memory_locks() -> Iterator[None]:
    """Keep the locks of all aliases in memory. None is held at first."""
    with override_locks():
        yield


@pytest.fixture
def manual_clock(memory_locks: None) -> Iterator[ManualClock]:
    """Keep the locks of all aliases in memory, and let the test move their time."""
    with ManualClock() as clock:
        yield clock


@pytest.fixture
def captured_locks() -> Iterator[Captured]:
    """Collect the events of locks during the test."""
    with capture_locks() as found:
        yield found


@pytest.fixture
def no_locks_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if it leaves a lock held, and release that lock."""
    if "memory_locks" in request.fixturenames:
        request.getfixturevalue("memory_locks")  # its end forgets held locks, so it has to end after this fixture
    before = {id(grant) for grant in held_here()}
    yield
    left = [grant for grant in held_here() if id(grant) not in before]
    try:
        assert_none(left)
    finally:
        for grant in left:
            grant.release()

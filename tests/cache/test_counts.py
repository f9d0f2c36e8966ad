"""How many Python functions of the package a hit and a miss call: what a load costs, without noise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import django_redis_locks
from django_redis_locks.cache import get_or_load
from tests.cache import backends
from tests.cache.backends import HERE, at

FOLDER = django_redis_locks.__path__[0]


def calls(act: Callable[[], object]) -> int:
    """How often a function of the package is called, or a generator of it continued, in this thread."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(FOLDER)

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("kind", "hit", "miss"), [("locmem", 8, 120), ("redis", 28, 120)])
def test_hit_and_miss_make_few_calls(
    request: pytest.FixtureRequest, settings: Any, kind: str, hit: int, miss: int
) -> None:
    settings.CACHES = getattr(backends, kind)(request)
    options = {**at(HERE), "ttl": 60}

    def get(key: int) -> int:
        return calls(lambda: get_or_load(f"k{key}", lambda: 1, **options))

    get(0)  # connects
    # The fewest: now and then a connection is checked, or the maintenance thread is woken
    assert min(get(key) for key in range(1, 9)) <= miss
    assert min(get(key) for key in range(1, 9)) <= hit

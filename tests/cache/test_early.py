"""Early refreshes: a value that is still fresh is loaded by one caller."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from django_redis_locks.cache import get_or_load
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import is_fused, seconds_learned


def test_early_fraction_lets_one_caller_load(callers: Callers) -> None:
    options: dict[str, Any] = {"ttl": 60, "jitter": 0, "early": 0.0001, "stale": 0}
    # an envelope tells the age of a value in a cache that doesn't
    callers.load("k", "old", **(options if not is_fused(**at(HERE)) else {"jitter": 0}))
    begin = monotonic()
    eventually(lambda: monotonic() - begin > 0.03)  # 6 ms are a ten-thousandth of the ttl
    loading = callers.begin("new", **options)
    found = callers.load("k", "other", cache=THERE, **options)
    assert (found.value, found.source) == ("old", "hit")
    assert loading.finish() == "new"
    assert loading.loader.calls == 1


def test_duration_of_a_failed_load_is_not_learned(redis_pair: str) -> None:
    """[S51] Only what a loader took that brought a value."""
    with pytest.raises(ValueError, match="x"):
        get_or_load("slow:1", Loader(ValueError("x")), cache=HERE)
    assert seconds_learned("slow") is None
    get_or_load("slow:2", Loader("v"), cache=HERE)
    assert (seconds_learned("slow") or PATIENCE) < PATIENCE

"""A cache that isn't on Redis is written in two steps: what is invalidated between the check and the write comes back for a
moment, and the check after the write takes it out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks import LockBackendError
from django_redis_locks.cache import get_or_load, invalidate
from tests.cache import backends
from tests.cache.backends import HERE, THERE
from tests.probes.cache import fail_command, settle

pytestmark = [
    pytest.mark.parametrize("cache_pair", [backends.files], indirect=True),
    pytest.mark.usefixtures("cache_pair"),
]


class Steps:
    """A cache that lets others go first, just before and just after it is written."""

    def __init__(self, patch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object]) -> None:
        self.seen: list[Any] = []
        cache = caches[HERE]
        write, remove = cache.set, cache.delete

        def stepped(key: str, value: Any, *args: Any, **kwargs: Any) -> None:
            before()
            write(key, value, *args, **kwargs)
            self.seen.append(cache.get(key))
            after()

        def removed(key: str, *args: Any, **kwargs: Any) -> Any:
            self.seen.append(cache.get(key))
            return remove(key, *args, **kwargs)

        patch.setattr(cache, "set", stepped)
        patch.setattr(cache, "delete", removed)


SEEN = {"load": [None], "before": [None, "old", "old"], "after": ["old", "old", None]}
"""What the invalidation removes, what is written, and what is taken out again: all that was in the cache at such a moment."""


@pytest.mark.parametrize("when", SEEN)
def test_invalidation_around_the_check_and_the_write_leaves_no_old_value(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """[S1] The old value was there for the time of two steps at most, and is gone when the load has ended."""

    def at(moment: str) -> None:
        if moment == when:
            invalidate("k", **backends.at(THERE))  # by another process

    steps = Steps(monkeypatch, lambda: at("before"), lambda: at("after"))

    def load() -> str:
        at("load")
        return "old"

    assert get_or_load("k", load, **backends.at(HERE), ttl=60) == "old"  # to its own caller
    assert steps.seen == SEEN[when]
    assert caches[HERE].get("k") is None
    assert get_or_load("k", lambda: "new", **backends.at(HERE), ttl=60) == "new"


@pytest.mark.parametrize("name", ["load/store", "load/renew"])
def test_check_without_an_answer_leaves_neither_value_nor_claim(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It isn't known whether the claim was still in force."""
    fail_command(monkeypatch, name, LockBackendError("no answer", unanswered=True, passing=True), **backends.at(HERE))
    assert get_or_load("k", lambda: "old", **backends.at(HERE), ttl=60) == "old"
    monkeypatch.undo()
    assert caches[HERE].get("k") is None
    settle(**backends.at(HERE))
    assert get_or_load("k", lambda: "new", **backends.at(THERE), ttl=60, wait=0, on_conflict="raise") == "new"

"""A cache that isn't on Redis is written in two steps: what is invalidated between the check and the write comes back for a
moment, and the check after the write takes it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks import LockBackendError
from django_redis_locks.cache import get_or_load, invalidate
from tests.cache.backends import DUMMY, FILES, HERE, THERE, at, redis_locks
from tests.probes.cache import fail_command, settle

pytestmark = pytest.mark.usefixtures("files")


@pytest.fixture
def files(settings: Any, redis_url: str, tmp_path: Path) -> Iterator[None]:
    """A cache in files; its leases are on a server of Redis, which two processes reach."""
    entry = {"BACKEND": FILES, "LOCATION": str(tmp_path)}
    settings.REDIS_LOCKS = redis_locks(redis_url)
    settings.CACHES = {"default": {"BACKEND": DUMMY}, HERE: entry}
    yield
    caches.close_all()


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


def nothing() -> None:
    pass


def invalidated() -> None:
    """By another process."""
    invalidate("k", **at(THERE))


@pytest.mark.parametrize("when", ["before", "after"])
def test_invalidation_between_check_and_write_removes_the_value(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """[S1] The old value was there for the time of two steps, and is gone when the load has ended."""
    steps = Steps(
        monkeypatch, invalidated if when == "before" else nothing, invalidated if when == "after" else nothing
    )
    result = get_or_load("k", lambda: "old", **at(HERE), ttl=60, info=True)
    assert (result.value, result.source) == ("old", "loaded")  # to its own caller
    # What the invalidation removes, what is written, what is taken out again:
    assert steps.seen == ([None, "old", "old"] if when == "before" else ["old", "old", None])
    assert caches[HERE].get("k") is None
    assert get_or_load("k", lambda: "new", **at(HERE), ttl=60) == "new"


def test_invalidation_before_the_check_prevents_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """[S1] It isn't written at all."""
    steps = Steps(monkeypatch, nothing, nothing)

    def load() -> str:
        invalidated()
        return "old"

    assert get_or_load("k", load, **at(HERE), ttl=60) == "old"
    assert "old" not in steps.seen


def test_newer_value_removed_by_an_older_load_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that removes its own value can't tell it from a newer one: that costs a load, and never shows an old value."""

    def overtaken() -> None:
        monkeypatch.undo()
        invalidated()
        assert get_or_load("k", lambda: "new", cache=HERE, using=THERE, ttl=60) == "new"

    Steps(monkeypatch, overtaken, nothing)
    assert get_or_load("k", lambda: "old", **at(HERE), ttl=60) == "old"
    assert caches[HERE].get("k") is None


@pytest.mark.parametrize("name", ["load/store", "load/renew"])
def test_check_without_an_answer_leaves_neither_value_nor_claim(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It isn't known whether the claim was still in force."""
    fail_command(monkeypatch, name, LockBackendError("no answer", unanswered=True, passing=True), **at(HERE))
    assert get_or_load("k", lambda: "old", **at(HERE), ttl=60) == "old"
    monkeypatch.undo()
    assert caches[HERE].get("k") is None
    settle(**at(HERE))
    assert get_or_load("k", lambda: "new", cache=HERE, using=THERE, ttl=60, wait=0, on_conflict="raise") == "new"

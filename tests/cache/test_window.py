"""The window of the road beside: a cache that isn't on Redis is written in two steps, so that what is invalidated between
the check and the write comes back for a moment. The check after the write takes it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks import LockBackendError
from django_redis_locks.cache import get_or_load, invalidate
from django_redis_locks.core.effects import Command
from tests.cache.conftest import DUMMY, HERE, THERE, at, redis_locks, road_at
from tests.cache.conftest import Loader as Values

pytestmark = pytest.mark.usefixtures("files")


@pytest.fixture
def files(settings: Any, redis_url: str, tmp_path: Path) -> Iterator[None]:
    """A cache in files; its leases are on a server of Redis, which two processes reach."""
    entry = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)}
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
def test_what_was_invalidated_between_the_check_and_the_write_is_taken_out(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """[S1] The old value was there for the time of two steps, and is gone when the load has ended."""
    steps = Steps(
        monkeypatch, invalidated if when == "before" else nothing, invalidated if when == "after" else nothing
    )
    result = get_or_load("k", Values("old"), **at(HERE), ttl=60, info=True)
    assert (result.value, result.source) == ("old", "loaded")  # to its own caller
    # What the invalidation removes, what is written, what is taken out again:
    assert steps.seen == ([None, "old", "old"] if when == "before" else ["old", "old", None])
    assert caches[HERE].get("k") is None
    assert get_or_load("k", Values("new"), **at(HERE), ttl=60) == "new"


def test_an_invalidation_before_the_check_leaves_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """[S1] It isn't written at all."""
    steps = Steps(monkeypatch, nothing, nothing)

    def load() -> str:
        invalidated()
        return "old"

    assert get_or_load("k", load, **at(HERE), ttl=60) == "old"
    assert "old" not in steps.seen


def test_what_a_newer_load_wrote_is_at_worst_loaded_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes his own value out can't tell it from a newer one: that costs a load, and never shows an old value."""

    def overtaken() -> None:
        monkeypatch.undo()
        invalidated()
        assert get_or_load("k", Values("new"), cache=HERE, using=THERE, ttl=60) == "new"

    Steps(monkeypatch, overtaken, nothing)
    assert get_or_load("k", Values("old"), **at(HERE), ttl=60) == "old"
    assert caches[HERE].get("k") is None


@pytest.mark.parametrize("name", ["load/store", "load/renew"])
def test_a_check_that_isnt_answered_leaves_neither_value_nor_claim(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Nobody knows whether the claim was still in force."""
    handlers = road_at(HERE).world.handlers
    ask = handlers[Command]

    def lose(command: Command[Any]) -> Any:
        reply = ask(command)
        if command.name == name:
            raise LockBackendError("no answer", unanswered=True, passing=True)
        return reply

    monkeypatch.setitem(handlers, Command, lose)
    assert get_or_load("k", Values("old"), **at(HERE), ttl=60) == "old"
    monkeypatch.undo()
    assert caches[HERE].get("k") is None
    road_at(HERE).engine.settle(10)
    assert get_or_load("k", Values("new"), cache=HERE, using=THERE, ttl=60, wait=0, on_conflict="raise") == "new"

"""Background retries of failed invalidations: their times, their number, and their end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import cache, caches
from django.core.cache.backends.base import BaseCache

from django_redis_locks import LockBackendError
from django_redis_locks.cache import get_or_load, invalidate, metrics, refresh
from django_redis_locks.cache.loading.coordinator import coordinator_of
from django_redis_locks.cache.loading.effects import Delete, Store
from django_redis_locks.cache.loading.invalidation import invalidate_all
from django_redis_locks.cache.loading.invalidation_retries import _drop_all
from django_redis_locks.core import clock
from django_redis_locks.core.commands import Command
from django_redis_locks.testing import ManualClock
from tests.forks import in_child
from tests.probes.tuning import Tune
from tests.waiting import eventually

LONG = 40.0


def key_of_thread(key: str, prefix: str, version: int) -> str:
    """A key function that depends on the thread, as for tenants; the retrying thread has another one."""
    return f"{'invalidations' in threading.current_thread().name}:{key}"


class TimeLimitExceeded(Exception):
    """Like the exception that Celery raises at any point of a task."""


class Delegating(BaseCache):
    """A cache backend that keeps its values in another cache."""

    def __init__(self, _location: str, params: dict[str, Any]) -> None:
        super().__init__(params)

    def set(self, *args: Any, **kwargs: Any) -> None:
        caches["inner"].set(*args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        return caches["inner"].get(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> bool:
        return caches["inner"].delete(*args, **kwargs)


class Outage:
    """A cache with its values in files and its leases in memory. While one of them is ``down``, its commands fail."""

    def __init__(self, manual: ManualClock, patch: pytest.MonkeyPatch) -> None:
        self.manual = manual
        self.retries = coordinator_of().retries
        self.times: list[float] = []
        self.down: type[Any] | None = Command
        self.refused: set[str] = set()
        self.stuck: set[str] = set()
        handlers = coordinator_of().performer.handlers
        for kind in (Command, Delete):
            patch.setitem(handlers, kind, self._failing(kind, handlers[kind]))

    def _failing(self, kind: type[Any], perform: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def fail_or_perform(effect: Any) -> Any:
            if kind is Command:
                self.times.append(clock.now())
                if effect.keys[0].rsplit(":", 1)[1] in self.refused:
                    raise LockBackendError("NOPERM", transient=False)
            elif effect.key in self.stuck:
                raise OSError("is a directory")
            if kind is self.down:
                raise LockBackendError("refused", transient=True) if kind is Command else OSError("k is full")
            return perform(effect)

        return fail_or_perform

    def advance(self, seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            self.manual.advance(0.5)
            eventually(lambda: "django-redis-locks invalidations" not in threads())

    @property
    def pauses(self) -> list[float]:
        """The seconds between two rounds of requests."""
        times = list(dict.fromkeys(self.times))
        return [after - before for before, after in pairwise(times)]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


@pytest.fixture
def outage(settings: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, tune: Tune) -> Iterator[Outage]:
    tune(invalidation_timeout=0.0)
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": "s6"}
    }
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
            "LOCATION": str(tmp_path),
            "KEY_FUNCTION": key_of_thread,
        },
        "guarded": {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "default"},
    }
    with ManualClock() as manual:
        yield Outage(manual, monkeypatch)


def fail_to_invalidate(*keys: str, **how: Any) -> None:
    with pytest.raises((LockBackendError, OSError)):
        invalidate(*keys, **how)


@pytest.mark.parametrize("down", [Command, Delete], ids=["leases", "values"])
def test_failed_invalidation_is_repeated_with_growing_pauses_until_it_succeeds_once(
    outage: Outage, down: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """[S6] A failed retry removes no value that was written since; a successful one removes it. The retries use the
    cache key of the caller."""
    caplog.set_level("INFO", "django_redis_locks.cache")
    outage.down = down
    fail_to_invalidate("k")
    cache.set("k", "written meanwhile")
    outage.advance(LONG)
    assert outage.pauses == [1, 2, 4, 8, 10, 10]
    assert cache.get("k") == "written meanwhile"
    outage.down = None
    outage.advance(10)
    assert cache.get("k") is None
    cache.set("k", "new")
    outage.advance(LONG)
    assert cache.get("k") == "new"
    assert len(outage.times) == 8
    messages = [record for record in caplog.records if "invalidat" in record.getMessage()]
    assert [(record.levelname, record.args[0]) for record in messages] == [("WARNING", 1), ("INFO", 1)]
    assert "k is full" not in caplog.text


def test_pending_invalidations_are_one_per_key_and_bounded_in_number_and_time(
    outage: Outage, tune: Tune, caplog: pytest.LogCaptureFixture
) -> None:
    """[S6] The oldest are dropped, and those that have failed for too long. One retry covers all failed invalidations
    of its key, and ends when the caller's next invalidation succeeds."""
    tune(max_pending_invalidations=2, invalidation_retry_period=LONG, invalidation_timeout=1.0)
    began = clock.now()
    fail_to_invalidate("a", "b", "b")
    first = clock.now()
    assert first - began <= 1.0, "one wait for all keys"
    fail_to_invalidate("c", "b", stale=60, replica_lag=60)
    pending = outage.retries.pending
    assert [retry.user_key for retry in pending.values()] == ["c", "b"]
    b = pending[key_of_thread("b", "", 1)]
    assert (b.stale_until, b.lag_until) == (first, clock.now() + 60)
    outage.advance(LONG - 1)
    outage.down = None
    invalidate("c", replica_lag=60)
    outage.down = Command
    assert [retry.user_key for retry in pending.values()] == ["b"]
    outage.advance(LONG)
    assert not pending
    messages = [record.args for record in caplog.records if record.levelname == "ERROR"]
    assert [(number, why.split()[0]) for number, _, why in messages] == [(1, "too"), (1, "the")]


@pytest.mark.parametrize("interruption", [asyncio.CancelledError, GeneratorExit])
def test_interrupted_invalidation_is_repeated(outage: Outage, interruption: type[BaseException]) -> None:
    """[S6] Its task is cancelled or its coroutine closed before all keys are invalidated."""
    outage.down = None
    for key in ("a", "b"):
        cache.set(key, "old")
    program = invalidate_all(coordinator_of(), [(key_of_thread(key, "", 1), key, None) for key in ("a", "b")])
    next(program)
    with pytest.raises(interruption):
        program.throw(interruption())
    outage.advance(2)
    assert cache.get_many(["a", "b"]) == {}


def test_key_that_always_fails_delays_no_other(outage: Outage, tune: Tune) -> None:
    """[S6] Keys that are refused, or can't be removed, are retried after the others, ten per round, with growing
    pauses. A new failure is retried after the shortest pause."""
    tune(max_refused_retry_delay=16.0)
    outage.down, outage.stuck = None, {"stuck"}
    outage.refused = {f"refused{number}" for number in range(15)}
    cache.set("k", "old")
    fail_to_invalidate("stuck", *outage.refused)
    fail_to_invalidate_once(outage, "k")
    outage.advance(4)
    assert cache.get("k") is None
    outage.stuck.clear()
    outage.advance(20)
    assert {retry.user_key for retry in outage.retries.pending.values()} == outage.refused
    outage.times.clear()
    outage.advance(100)
    assert outage.pauses[-2:] == [16, 16]
    assert set(Counter(outage.times).values()) == {10}
    cache.set("k", "old")
    fail_to_invalidate_once(outage, "k")
    outage.advance(1)
    assert cache.get("k") is None


def fail_to_invalidate_once(outage: Outage, key: str) -> None:
    outage.down = Command
    fail_to_invalidate(key)
    outage.down = None


def test_retry_round_is_planned_once_despite_exceptions(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S6] A signal handler raises while the log is written or the round is planned, or no thread can be started."""
    with monkeypatch.context() as patch:
        patch.setattr(metrics.log, "log", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            invalidate("a")
    outage.advance(1)
    assert outage.pauses == [1]
    outage.retries.drop()
    outage.advance(2)
    engine, no_thread = coordinator_of().engine, LockBackendError("no thread")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "call_at", Mock(side_effect=[KeyboardInterrupt, no_thread, no_thread]))
        with pytest.raises(KeyboardInterrupt):
            invalidate("a")
        fail_to_invalidate("b")
        fail_to_invalidate("c")
    outage.times.clear()
    fail_to_invalidate("d")
    outage.advance(LONG)
    assert outage.pauses == [1, 2, 4, 8, 10, 10]


def test_retry_is_skipped_if_it_is_no_longer_pending(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S6] A caller's own invalidation succeeded while the round was busy with another key."""
    fail_to_invalidate("a", "b")
    outage.down = None
    handlers = coordinator_of().performer.handlers
    remove = handlers[Delete]

    def succeed(effect: Delete) -> None:
        remove(effect)
        outage.retries.drop()

    monkeypatch.setitem(handlers, Delete, succeed)
    outage.advance(LONG)
    assert len(outage.times) == 3


def test_log_has_the_first_failure_and_the_number_of_the_others(
    outage: Outage, tune: Tune, caplog: pytest.LogCaptureFixture
) -> None:
    """[S6] A failure doesn't log one line per call."""
    tune(max_pending_invalidations=50)
    for number in range(100):
        fail_to_invalidate(f"k{number}")
    outage.advance(20)
    messages = [(record.levelname, record.args[0]) for record in caplog.records if "coordinated" not in record.msg]
    assert messages == [("WARNING", 1), ("WARNING", 99), ("ERROR", 50)]


@pytest.mark.parametrize(
    ("before", "write", "after"),
    [
        (None, lambda: caches["guarded"].set("k", "new"), "new"),
        (None, lambda: async_to_sync(caches["guarded"].aset)("k", "new"), "new"),
        (None, lambda: caches["guarded"].add("k", "new"), "new"),
        (None, lambda: async_to_sync(caches["guarded"].aadd)("k", "new"), "new"),
        ("old", lambda: caches["guarded"].add("k", "new"), None),
        ("old", lambda: caches["guarded"].touch("k"), None),
        (None, lambda: caches["guarded"].set_many({"k": "new"}), "new"),
        (None, lambda: async_to_sync(caches["guarded"].aset_many)({"k": "new"}), "new"),
        ("old", lambda: refresh("k", lambda: "new"), "new"),
    ],
    ids=["set", "aset", "add", "aadd", "not-added", "touch", "set_many", "aset_many", "refresh"],
)
def test_value_that_was_written_since_the_failure_stays(
    outage: Outage, before: str | None, write: Callable[[], object], after: str | None
) -> None:
    """[S6] Unless the replica lag of the invalidation lasts longer."""
    outage.down = Delete
    cache.set("k", before) if before else cache.delete("k")
    fail_to_invalidate("k")
    outage.down = None
    outage.advance(0.5)
    write()
    outage.advance(2)
    assert cache.get("k") == after
    outage.down = Delete
    fail_to_invalidate("k", replica_lag=5)
    write()
    assert outage.retries.pending


def test_value_whose_load_began_before_the_failure_is_removed(outage: Outage) -> None:
    """[S6] It was stored, since the failed invalidation didn't reach its lease."""
    outage.down = None

    def load() -> str:
        outage.refused.add("k")
        fail_to_invalidate("k")
        outage.refused.clear()
        return "old"

    refresh("k", load)
    assert cache.get("k") == "old"
    outage.advance(2)
    assert cache.get("k") is None


def test_pending_invalidations_end_with_their_process(
    outage: Outage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """[S6] A forked child has none. A failed start of the thread is retried."""

    def child() -> None:
        assert not outage.retries.pending
        _drop_all()
        assert "process ends" not in caplog.text

    fail_to_invalidate("k")
    in_child(child)
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if "invalidations" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        outage.advance(2)
    assert len(outage.times) == 1
    outage.advance(1)
    assert len(outage.times) == 2
    _drop_all()
    assert caplog.text.count("the process ends") == 1
    assert not outage.retries.pending


def test_retry_removes_the_value_of_a_delegating_cache(
    outage: Outage, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S6] The other cache has the value under another key."""
    inner = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "KEY_PREFIX": "inner"}
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.Delegating"}, "inner": inner}
    outage = Outage(outage.manual, monkeypatch)
    outage.down = Delete
    cache.set("k", "old")
    fail_to_invalidate("k")
    outage.down = None
    outage.advance(2)
    assert cache.get("k") is None


@pytest.mark.parametrize("failure", [TimeLimitExceeded, KeyboardInterrupt])
@pytest.mark.parametrize("interrupted", [Store, Command, Delete], ids=["write", "check", "removal"])
def test_interrupted_load_leaves_no_value_that_was_invalidated_during_it(
    outage: Outage, monkeypatch: pytest.MonkeyPatch, interrupted: type[Any], failure: type[BaseException]
) -> None:
    """[S6] The invalidation comes before the write of the value, the interruption after it."""
    outage.down = None
    handlers, written = coordinator_of().performer.handlers, []

    def stepped(kind: type[Any], perform: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(effect: Any) -> Any:
            if kind is Store:
                invalidate("k")
                perform(effect)
                written.append(effect)
            if kind is interrupted and written:
                written.clear()
                raise failure
            return None if kind is Store else perform(effect)

        return step

    for kind in (Store, Command, Delete):
        monkeypatch.setitem(handlers, kind, stepped(kind, handlers[kind]))
    with pytest.raises(failure):
        get_or_load("k", lambda: "old")
    outage.advance(2)
    assert cache.get("k") is None


def test_invalidation_raises_a_time_limit_when_all_other_keys_are_done(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S6] Even if later keys fail. A key that is given twice is invalidated once."""
    removed: list[str] = []

    def remove(effect: Delete) -> None:
        removed.append(effect.key)
        if removed == ["a", "b"]:
            outage.down = Command
            raise TimeLimitExceeded

    outage.down = None
    monkeypatch.setitem(coordinator_of().performer.handlers, Delete, remove)
    with pytest.raises(TimeLimitExceeded):
        invalidate("a", "b", "b", "c")
    assert removed == ["a", "b", "c"]
    assert [retry.user_key for retry in outage.retries.pending.values()] == ["b", "c"]

"""Invalidations that failed: each is repeated in the background until it is carried out, and not once more.

A repeat voids whatever the cache has by then, also a value that was loaded since the first attempt and is right. That costs
one more load, as does a repeat after an attempt whose answer was lost.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from django.db import connections

from ..core import clock, forks
from ..core.daemon import Daemon
from ..core.errors import LockBackendError
from ..core.runner import run
from . import metrics
from .worlds import Remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.effects import Program
    from .roads import Road


class Retry(NamedTuple):
    """An invalidation to be repeated.

    Attributes:
        key: as the cache stores it; ``plain`` and ``version``: as its user has it.
        stale_until: until then the old value may be served.
        settle_until: until then what is loaded is kept no longer than that.
        end: when it is given up.
    """

    key: str
    plain: str
    version: int | None
    stale_until: float
    settle_until: float
    end: float


class Retries:
    """Those of one cache in this process. A timer of the maintenance thread starts a thread for each attempt."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self.after_fork_in_child()
        _all.add(self)

    def after_fork_in_child(self) -> None:
        """The parent repeats its own."""
        self._mutex = threading.RLock()
        self._planned = False
        self._pause = 0.0
        self.pending: dict[str, Retry] = {}
        """By key, the oldest first."""

    def add(
        self, items: Sequence[tuple[str, str, int | None]], failure: BaseException, keep: int = 0, settle: int = 0
    ) -> None:
        """Repeat these from now on, each with what an earlier one of its key asked for."""
        forks.pid()
        now, tuning = clock.now(), self._road.world.tuning
        with self._mutex:
            for key, plain, version in items:
                stale_until, settle_until = now + keep / 1000, now + settle / 1000
                before = self.pending.pop(key, None)
                if before is not None:
                    stale_until = min(stale_until, before.stale_until)
                    settle_until = max(settle_until, before.settle_until)
                end = now + tuning.invalidation_memory
                self.pending[key] = Retry(key, plain, version, stale_until, settle_until, end)
            too_many = max(0, len(self.pending) - tuning.most_invalidations)
            for key in list(islice(self.pending, too_many)):
                del self.pending[key]
            idle, self._planned = not self._planned, True
        reason = failure if isinstance(failure, LockBackendError) else type(failure).__name__  # may hold a key
        text = "%d keys of cache %r couldn't be invalidated, and are tried again in the background: %s"
        metrics.log.warning(text, len(items), self._road.alias, reason)
        self._gave_up(too_many, "too many are waiting")
        if idle:
            self._pause = tuning.invalidation_retry
            self._plan()

    def done(self, retry: Retry) -> bool:
        """It is carried out; False if another one of its key has failed since."""
        with self._mutex:
            if self.pending.get(retry.key) is not retry:
                return False
            del self.pending[retry.key]
            return True

    def drop(self, why: str = "") -> None:
        """Repeat nothing of this any more."""
        with self._mutex:
            dropped, self.pending = self.pending, {}
        if why:
            self._gave_up(len(dropped), why)

    def _gave_up(self, number: int, why: str) -> None:
        if number:
            text = "%d failed invalidations of cache %r are given up, and old values may stay: %s"
            metrics.log.error(text, number, self._road.alias, why)

    def _plan(self) -> None:
        try:
            self._road.engine.alarm(clock.now() + self._pause, self._begin)
        except LockBackendError as failure:
            self._planned = False
            metrics.log.error("Failed invalidations can't be tried again before the next one fails: %s", failure)

    def _begin(self) -> None:
        try:
            Daemon(self._work, "django-redis-locks invalidations").start()
        except LockBackendError:  # no thread to be had now
            self._plan()

    def _work(self) -> None:
        try:
            self._repeat()
        finally:
            with self._mutex:
                self._planned = bool(self.pending)
                self._pause = min(2 * self._pause, self._road.world.tuning.longest_invalidation_retry)
            if self._planned:
                self._plan()

    def _repeat(self) -> None:
        now, done = clock.now(), 0
        over = [retry for retry in list(self.pending.values()) if retry.end <= now]
        self._gave_up(sum(map(self.done, over)), "the store hasn't carried them out for too long")
        for retry in list(self.pending.values()):
            try:
                run(self._repeating(retry), self._road.world)
            except Exception as failure:  # noqa: BLE001 - whatever the cache raises
                if getattr(failure, "passing", True):
                    break  # the others would fail, too
            else:
                done += self.done(retry)
        if done:
            text = "%d failed invalidations of cache %r are carried out, %d are left"
            metrics.log.info(text, done, self._road.alias, len(self.pending))
        if not self._road.fused:
            connections.close_all()  # of this thread, which ends

    def _repeating(self, retry: Retry) -> Program[None]:
        road, now = self._road, clock.now()
        keep, settle = (max(0, round(1000 * (until - now))) for until in (retry.stale_until, retry.settle_until))
        road.forget(retry.key)
        yield from road.load(retry.key, "").fencing(keep, settle, road.patience)
        if not road.fused:  # only now: each attempt would void what was written since
            yield Remove(retry.plain, retry.version, stored=retry.key)
        road.forget(retry.key)


_all: weakref.WeakSet[Retries] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    forks.all_of_them([retries.after_fork_in_child for retries in list(_all)])


forks.in_child(_after_fork_in_child)


@atexit.register
def _drop_all() -> None:
    for retries in list(_all):
        retries.drop("the process ends")

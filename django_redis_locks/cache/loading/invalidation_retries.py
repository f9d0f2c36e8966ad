"""Repeats failed invalidations in the background until they succeed.

A repeat deletes the value that the cache has by then, even a newer one that was written by a plain ``set`` of the
cache, and even if the invalidation had succeeded and only its reply was lost. Either costs one more load.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from django.db import connections

from ...core import clock, forks
from ...core.background_thread import BackgroundThread
from ...core.errors import LockBackendError
from ...core.runner import run
from .. import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.commands import Program
    from .effects import LoadPerformer

FAILURES_IN_A_ROW: Final = 10
"""The number of consecutive failures that ends a round: then the store is probably down, and each further attempt would
take until its timeout."""

LOG_INTERVAL: Final = 10.0
"""Seconds between two summaries in the log."""

FAILED: Final = "%d keys of cache %r couldn't be invalidated, and are tried again in the background: %s"
GIVEN_UP: Final = "%d failed invalidations of cache %r are given up, and old values may stay: %s"
NOT_SCHEDULED: Final = "%d times the thread that repeats failed invalidations of cache %r couldn't be started: %s"


@dataclass(slots=True, eq=False)
class Retry:
    """An invalidation to be repeated. All times are on the monotonic clock.

    Attributes:
        key: as the cache stores it; ``user_key`` and ``version``: as the caller passed them.
        stale_until: until when the old value may be served.
        lag_until: end of the replica lag, beyond which no loaded value is kept; no earlier than the failure.
        end: when the invalidation is given up.
        tried: time of the last repeat.
    """

    key: str
    user_key: str
    version: int | None
    stale_until: float
    lag_until: float
    end: float
    tried: float = -inf


class Retries:
    """The failed invalidations of one cache in this process.

    They are repeated in rounds, at most one of which is scheduled or running: a timer of the maintenance thread starts
    a thread for each round. The pauses between rounds double; a new failure resets them.
    """

    def __init__(
        self,
        alias: str,
        performer: LoadPerformer,
        repeat: Callable[[Retry], Program[None]],
        *,
        closes_connections: bool,
    ) -> None:
        self._alias = alias
        self._performer = performer
        self._repeat = repeat
        self._closes_connections = closes_connections
        self.after_fork_in_child()
        _all.add(self)
        forks.reset_in_child(self)

    def after_fork_in_child(self) -> None:
        """Forget all entries in the child of a fork: the parent repeats them."""
        self._mutex = threading.RLock()
        self._pause = 0.0
        self._due = inf
        """The start of the next round; -inf while one runs, inf if none is scheduled."""
        self._unlogged: Counter[tuple[int, str, str]] = Counter()
        self._no_log_until = -inf
        self.pending: dict[str, Retry] = {}
        """The entries by key, the oldest first."""

    def add(
        self, items: Sequence[tuple[str, str, int | None]], failure: BaseException, stale_ms: int = 0, lag_ms: int = 0
    ) -> None:
        """Add failed invalidations, to be repeated. An earlier entry of the same key is merged into the new one."""
        forks.pid()
        now, tuning = clock.now(), self._performer.tuning
        # Messages of other exceptions may contain keys, which aren't logged
        reason = str(failure) if isinstance(failure, LockBackendError) else type(failure).__name__
        with self._mutex:
            for key, user_key, version in items:
                stale_until, lag_until = now + stale_ms / 1000, now + lag_ms / 1000
                before = self.pending.pop(key, None)
                if before is not None:
                    stale_until = min(stale_until, before.stale_until)
                    lag_until = max(lag_until, before.lag_until)
                end = now + tuning.invalidation_retry_period
                self.pending[key] = Retry(key, user_key, version, stale_until, lag_until, end)
            too_many = max(0, len(self.pending) - tuning.max_pending_invalidations)
            for key in list(islice(self.pending, too_many)):
                del self.pending[key]
            self._pause = tuning.min_invalidation_retry_delay
            self._plan_round()
            self._count(logging.WARNING, FAILED, len(items), reason)
            self._count(logging.ERROR, GIVEN_UP, too_many, "too many are waiting")
        self._log()  # last: a log handler may raise

    def done(self, retry: Retry) -> bool:
        """Remove an entry that was carried out. Returns False if its key has failed again since."""
        with self._mutex:
            if self.pending.get(retry.key) is not retry:
                return False
            del self.pending[retry.key]
            return True

    def replaced(self, key: str, since: float) -> None:
        """Remove the entry of a key whose value was written or loaded after ``since``, with earlier loads voided: an
        invalidation that failed before that needn't be repeated."""
        retry = self.pending.get(key)
        if retry is not None and retry.lag_until < since:
            self.done(retry)

    def drop(self, why: str = "") -> None:
        """Drop all entries. With a reason this is logged as an error, without one it isn't logged."""
        with self._mutex:
            dropped, self.pending = self.pending, {}
            if why:
                self._count(logging.ERROR, GIVEN_UP, len(dropped), why)
            else:
                self._unlogged.clear()
        self._log(at_once=True)

    def _count(self, level: int, text: str, number: int, why: object) -> None:
        with self._mutex:
            if number:
                self._unlogged[level, text, str(why)] += number

    def _log(self, *, at_once: bool = False) -> None:
        """Log the counted events: the first one at once, later ones in summaries every ``LOG_INTERVAL`` seconds."""
        with self._mutex:
            if not self._unlogged or not (at_once or clock.now() >= self._no_log_until):
                return
            self._no_log_until = clock.now() + LOG_INTERVAL
            unlogged, self._unlogged = self._unlogged, Counter()
        for (level, text, why), number in unlogged.items():
            metrics.log.log(level, text, number, self._alias, why)

    def _plan_round(self) -> None:
        """Plan a round after the pause, unless there are no entries, or a round runs or begins earlier."""
        due = clock.now() + self._pause
        if self.pending and due < self._due:
            try:
                self._performer.engine.call_at(due, partial(self._begin, due))
            except LockBackendError as failure:
                self._count(logging.ERROR, NOT_SCHEDULED, 1, failure)
            else:
                self._due = due

    def _begin(self, due: float) -> None:
        with self._mutex:
            if due != self._due:  # replaced by an earlier round
                return
            self._due = -inf
            self._pause *= 2
        try:
            BackgroundThread(self._work, "django-redis-locks invalidations").start()
        except BaseException as failure:
            self._end_round(self._performer.tuning.max_invalidation_retry_delay)
            if not isinstance(failure, LockBackendError):  # LockBackendError: no thread can be started now
                raise

    def _work(self) -> None:
        longest_pause = self._performer.tuning.max_invalidation_retry_delay
        try:
            longest_pause = self._round()
        finally:
            self._end_round(longest_pause)
            self._log(at_once=not self.pending)

    def _end_round(self, longest_pause: float) -> None:
        with self._mutex:
            self._due = inf
            self._pause = min(self._pause, longest_pause)
            self._plan_round()

    def _round(self) -> float:
        """Repeat the pending invalidations: first those never repeated, then the least recently repeated.

        Returns:
            The longest pause before the next round: longer while the store or the cache only refuses.
        """
        tuning = self._performer.tuning
        now, done, failures, only_refusals = clock.now(), 0, 0, True
        overdue = [retry for retry in list(self.pending.values()) if retry.end <= now]
        too_long = "the store hasn't carried them out for too long"
        self._count(logging.ERROR, GIVEN_UP, sum(map(self.done, overdue)), too_long)
        for retry in sorted(self.pending.values(), key=attrgetter("tried")):
            if self.pending.get(retry.key) is not retry:  # carried out by a caller since, or dropped
                continue
            retry.tried = clock.now()
            try:
                run(self._repeat(retry), self._performer)
            except Exception as failure:  # noqa: BLE001 - whatever the cache raises
                only_refusals = only_refusals and not getattr(failure, "transient", True)
                failures += 1
                if failures == FAILURES_IN_A_ROW:
                    break
            else:
                failures = 0
                done += self.done(retry)
        if self._closes_connections:
            connections.close_all()  # Django keeps connections per thread, and this thread ends
        if done:
            text = "%d failed invalidations of cache %r are carried out, %d are left"
            metrics.log.info(text, done, self._alias, len(self.pending))
            return tuning.min_invalidation_retry_delay
        return tuning.max_refused_retry_delay if only_refusals else tuning.max_invalidation_retry_delay


_all: weakref.WeakSet[Retries] = weakref.WeakSet()


@atexit.register
def _drop_all() -> None:
    for retries in list(_all):
        retries.drop("the process ends")

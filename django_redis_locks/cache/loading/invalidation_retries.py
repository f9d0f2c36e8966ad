"""Failed invalidations, each repeated in the background until it succeeds once.

A repeat deletes the value that the cache has by then, even one written by a plain ``set`` of the cache. That costs one
more load, as does a repeat of an invalidation that succeeded but whose reply was lost.
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
"""The number of consecutive failures that ends a round. Fewer may concern single keys; each may take as long as a
timeout."""

LOG_INTERVAL: Final = 10.0
"""Seconds between two summaries in the log."""

FAILED: Final = "%d keys of cache %r couldn't be invalidated, and are tried again in the background: %s"
GIVEN_UP: Final = "%d failed invalidations of cache %r are given up, and old values may stay: %s"
UNPLANNED: Final = "%d times the thread that repeats failed invalidations of cache %r couldn't be started: %s"


@dataclass(slots=True, eq=False)
class Retry:
    """An invalidation to be repeated. All times are on the monotonic clock.

    Attributes:
        key: as the cache stores it; ``user_key`` and ``version``: as the caller passed them.
        stale_until: until when the old value may be served.
        lag_until: until when a replica may be late, so that loaded values are kept no longer; no earlier than the
            failure.
        end: when repeating ends without success.
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

    They are repeated in rounds, at most one of which is planned or running: a timer of the maintenance thread starts a
    thread for each. The pauses between rounds double; a new failure resets them.
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

    def after_fork_in_child(self) -> None:
        """Forget all entries in the child of a fork: the parent repeats them."""
        self._mutex = threading.RLock()
        self._pause = 0.0
        self._due = inf
        """Begin of the next round; -inf while one runs, inf if none is planned."""
        self._unlogged: Counter[tuple[int, str, str]] = Counter()
        self._silent_until = -inf
        self.pending: dict[str, Retry] = {}
        """The entries by key, the oldest first."""

    def add(
        self, items: Sequence[tuple[str, str, int | None]], failure: BaseException, stale_ms: int = 0, lag_ms: int = 0
    ) -> None:
        """Repeat these invalidations from now on; each also covers an earlier failure of its key."""
        forks.pid()
        now, tuning = clock.now(), self._performer.tuning
        reason = (
            str(failure) if isinstance(failure, LockBackendError) else type(failure).__name__
        )  # its message may contain a key
        with self._mutex:
            for key, user_key, version in items:
                stale_until, lag_until = now + stale_ms / 1000, now + lag_ms / 1000
                before = self.pending.pop(key, None)
                if before is not None:
                    stale_until = min(stale_until, before.stale_until)
                    lag_until = max(lag_until, before.lag_until)
                end = now + tuning.invalidation_memory
                self.pending[key] = Retry(key, user_key, version, stale_until, lag_until, end)
            too_many = max(0, len(self.pending) - tuning.most_invalidations)
            for key in list(islice(self.pending, too_many)):
                del self.pending[key]
            self._pause = tuning.invalidation_retry
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
        """Remove the entry of a key whose value was written or loaded since a time, with earlier loads made void: an
        invalidation that failed before needs no repeat."""
        retry = self.pending.get(key)
        if retry is not None and retry.lag_until < since:
            self.done(retry)

    def drop(self, why: str = "") -> None:
        """Drop all entries. With a reason that is logged as an error, otherwise nothing is logged."""
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
        """Log the counted events: the first one at once, later ones as summaries. Called in each round."""
        with self._mutex:
            if not self._unlogged or not (at_once or clock.now() >= self._silent_until):
                return
            self._silent_until = clock.now() + LOG_INTERVAL
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
                self._count(logging.ERROR, UNPLANNED, 1, failure)
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
            self._end_round(self._performer.tuning.longest_invalidation_retry)
            if not isinstance(failure, LockBackendError):  # the thread can't be started now
                raise

    def _work(self) -> None:
        longest_pause = self._performer.tuning.longest_invalidation_retry
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
        now, done, failures, refused = clock.now(), 0, 0, True
        over = [retry for retry in list(self.pending.values()) if retry.end <= now]
        too_long = "the store hasn't carried them out for too long"
        self._count(logging.ERROR, GIVEN_UP, sum(map(self.done, over)), too_long)
        for retry in sorted(self.pending.values(), key=attrgetter("tried")):
            if self.pending.get(retry.key) is not retry:  # carried out by a caller since, or dropped
                continue
            retry.tried = clock.now()
            try:
                run(self._repeat(retry), self._performer)
            except Exception as failure:  # noqa: BLE001 - whatever the cache raises
                refused = refused and not getattr(failure, "transient", True)
                failures += 1
                if failures == FAILURES_IN_A_ROW:
                    break
            else:
                failures = 0
                done += self.done(retry)
        if self._closes_connections:
            connections.close_all()  # those of this thread, which ends
        if done:
            text = "%d failed invalidations of cache %r are carried out, %d are left"
            metrics.log.info(text, done, self._alias, len(self.pending))
            return tuning.invalidation_retry
        return tuning.longest_refused_retry if refused else tuning.longest_invalidation_retry


_all: weakref.WeakSet[Retries] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    forks.run_all([retries.after_fork_in_child for retries in list(_all)])


forks.in_child(_after_fork_in_child)


@atexit.register
def _drop_all() -> None:
    for retries in list(_all):
        retries.drop("the process ends")

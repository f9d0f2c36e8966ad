"""Invalidations that failed: each is repeated in the background until it is carried out, and not once more.

A repeat voids whatever the cache has by then, also a value that a plain ``set`` of the cache wrote. That costs one more load, as
does a repeat after an attempt whose answer was lost.
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
"""So many end a round: fewer may concern their keys only, and each may take as long as a time-out."""

LOG_INTERVAL: Final = 10.0
"""Seconds between two sums in the log."""

FAILED: Final = "%d keys of cache %r couldn't be invalidated, and are tried again in the background: %s"
GIVEN_UP: Final = "%d failed invalidations of cache %r are given up, and old values may stay: %s"
UNPLANNED: Final = "%d times the thread that repeats failed invalidations of cache %r couldn't be started: %s"


@dataclass(slots=True, eq=False)
class Retry:
    """An invalidation to be repeated.

    Attributes:
        key: as the cache stores it; ``user_key`` and ``version``: as its user has it.
        stale_until: until then the old value may be served.
        settle_until: until then what is loaded is kept no longer than that; no earlier than the failure.
        end: when it is given up.
        tried: when it was repeated last.
    """

    key: str
    user_key: str
    version: int | None
    stale_until: float
    settle_until: float
    end: float
    tried: float = -inf


class Retries:
    """Those of one cache in this process. They are repeated in rounds, of which one at most is planned or runs: an alarm of the
    maintenance thread starts a thread for each. The pauses between them double; a new failure has the shortest one."""

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
        """The parent repeats its own."""
        self._mutex = threading.RLock()
        self._pause = 0.0
        self._due = inf
        """When the next round begins; -inf while one runs, inf if none is planned."""
        self._unlogged: Counter[tuple[int, str, str]] = Counter()
        self._silent_until = -inf
        self.pending: dict[str, Retry] = {}
        """By key, the oldest first."""

    def add(
        self, items: Sequence[tuple[str, str, int | None]], failure: BaseException, keep: int = 0, settle: int = 0
    ) -> None:
        """Repeat these from now on, each with what an earlier one of its key asked for."""
        forks.pid()
        now, tuning = clock.now(), self._performer.tuning
        reason = str(failure) if isinstance(failure, LockBackendError) else type(failure).__name__  # may hold a key
        with self._mutex:
            for key, user_key, version in items:
                stale_until, settle_until = now + keep / 1000, now + settle / 1000
                before = self.pending.pop(key, None)
                if before is not None:
                    stale_until = min(stale_until, before.stale_until)
                    settle_until = max(settle_until, before.settle_until)
                end = now + tuning.invalidation_memory
                self.pending[key] = Retry(key, user_key, version, stale_until, settle_until, end)
            too_many = max(0, len(self.pending) - tuning.most_invalidations)
            for key in list(islice(self.pending, too_many)):
                del self.pending[key]
            self._pause = tuning.invalidation_retry
            self._function_cache()
            self._count(logging.WARNING, FAILED, len(items), reason)
            self._count(logging.ERROR, GIVEN_UP, too_many, "too many are waiting")
        self._log()  # last: a handler may raise

    def done(self, retry: Retry) -> bool:
        """It is carried out; False if another one of its key has failed since."""
        with self._mutex:
            if self.pending.get(retry.key) is not retry:
                return False
            del self.pending[retry.key]
            return True

    def replaced(self, key: str, since: float) -> None:
        """The value under a key was written, or loaded, since then, and loads that began earlier are void: what failed before
        isn't repeated."""
        retry = self.pending.get(key)
        if retry is not None and retry.settle_until < since:
            self.done(retry)

    def drop(self, why: str = "") -> None:
        """Repeat nothing of this any more. Without a reason the log has nothing of it."""
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
        """Write what was counted: the first failure at once, the others as a sum. Each round asks for that."""
        with self._mutex:
            if not self._unlogged or not (at_once or clock.now() >= self._silent_until):
                return
            self._silent_until = clock.now() + LOG_INTERVAL
            unlogged, self._unlogged = self._unlogged, Counter()
        for (level, text, why), number in unlogged.items():
            metrics.log.log(level, text, number, self._alias, why)

    def _function_cache(self) -> None:
        """Begin a round after the pause, unless one runs, or begins earlier, or there is nothing to do."""
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
            if due != self._due:  # an earlier one took its place
                return
            self._due = -inf
            self._pause *= 2
        try:
            BackgroundThread(self._work, "django-redis-locks invalidations").start()
        except BaseException as failure:
            self._end_round(self._performer.tuning.longest_invalidation_retry)
            if not isinstance(failure, LockBackendError):  # no thread to be had now
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
            self._function_cache()

    def _round(self) -> float:
        """Repeat what is pending, what was never repeated first, then what wasn't for longest.

        Returns:
            The longest pause before the next round: while the store, or the cache, only refuses, it needn't be asked often.
        """
        tuning = self._performer.tuning
        now, done, failures, refused = clock.now(), 0, 0, True
        over = [retry for retry in list(self.pending.values()) if retry.end <= now]
        too_long = "the store hasn't carried them out for too long"
        self._count(logging.ERROR, GIVEN_UP, sum(map(self.done, over)), too_long)
        for retry in sorted(self.pending.values(), key=attrgetter("tried")):
            if self.pending.get(retry.key) is not retry:  # carried out by a caller meanwhile, or dropped
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
            connections.close_all()  # of this thread, which ends
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

"""Counters and the signal ``load_finished``. Counters aren't kept by key, which may contain personal data."""

from __future__ import annotations

import itertools
import logging
from typing import Final, TypeVar

from django.dispatch import Signal

from ..core.forks import ForkSafeLock

log = logging.getLogger("django_redis_locks.cache")

HITS: Final = "hits"
STALE: Final = "stale"
LOADS: Final = "loads"
FAILURES: Final = "failures"
WAITS: Final = "waits"
FENCED: Final = "fenced"
TIMEOUTS: Final = "timeouts"
UNLOCKED: Final = "unlocked"
DOWN: Final = "down"
NESTED: Final = "nested"

K = TypeVar("K")

load_finished = Signal()
"""A signal, sent with ``send_robust`` after a loader has run, in the loader's thread.

Arguments:
    sender: the class of the cache.
    cache: its alias.
    key: the key as the cache stores it.
    name: the label of the load.
    seconds: how long the loader ran.
    outcome: ``"stored"``, ``"unstored"``, ``"failed"``, or ``"fenced"`` if the value wasn't stored because of a write
        or an invalidation during the load.
"""


class _Counter:
    """A counter that threads increment without a lock: ``add`` is one step in C."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._reads = 0
        self.add = self._count.__next__

    def value(self) -> int:
        """Return the number of calls of ``add``. Reading increments ``_count``, too."""
        value = self.add() - self._reads
        self._reads += 1
        return value


class Counters(dict[K, _Counter]):
    """Counters by their keys; one that is missing begins at 0."""

    def __missing__(self, key: K) -> _Counter:
        return self.setdefault(key, _Counter())

    def read(self) -> dict[K, int]:
        """Return the number of calls of ``add`` of each counter."""
        with _mutex.rlock:
            return {key: counter.value() for key, counter in list(self.items())}


_mutex = ForkSafeLock()
_counters: Counters[tuple[str, str]] = Counters()


def count(alias: str, counter: str) -> None:
    """Add one to a counter of a cache."""
    _counters[alias, counter].add()


def counters() -> dict[tuple[str, str], int]:
    """Return the counters of this process, by (alias of the cache, name of the counter).

    - ``hits``, ``stale``: fresh and stale values served.
    - ``loads``, ``failures``: loaders that returned, or raised.
    - ``waits``: callers that waited for another caller's load.
    - ``fenced``: values not stored because of a write or an invalidation during the load.
    - ``timeouts``: waits that ended before the load did.
    - ``unlocked``: loads without a claim, beside another load or because the store is down.
    - ``down``: failed requests to the store.
    - ``nested``: loads inside other loads that didn't wait, since that could be a deadlock.
    """
    return _counters.read()


def send_load_finished(sender: type, alias: str, key: str, name: str, seconds: float, outcome: str) -> None:
    """Send ``load_finished``, and log receivers that fail."""
    if load_finished.receivers:
        arguments = {"cache": alias, "key": key, "name": name, "seconds": seconds, "outcome": outcome}
        for receiver, result in load_finished.send_robust(sender=sender, **arguments):
            if isinstance(result, Exception):
                log.error("Receiver %r of load_finished failed", receiver, exc_info=result)

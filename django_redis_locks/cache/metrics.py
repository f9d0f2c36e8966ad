"""Counters, a signal and log lines about loads. Never by key: a key may contain personal data."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

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

load_finished = Signal()
"""A signal, sent with ``send_robust`` in the thread of the loader after it has run.

Arguments: ``sender``, the class of the cache; ``cache``, its alias; ``key``, as the cache stores it; ``name`` of the
    load;
``seconds`` that the loader took; ``outcome``: ``"stored"``, ``"unstored"``, ``"failed"``, or ``"fenced"`` if a write or
an invalidation during the load prevented the store.
"""

_counts: Counter[tuple[str, str]] = Counter()
_mutex = ForkSafeLock()


def count(alias: str, what: str) -> None:
    with _mutex.rlock:  # an increment is a read and a write
        _counts[alias, what] += 1


def counters() -> dict[tuple[str, str], int]:
    """Return the counters of this process, by (alias of the cache, name of the counter).

    ``hits``, ``stale``: fresh and stale values served. ``loads``, ``failures``: loaders that returned or raised.
    ``waits``: callers that waited for another caller's load. ``fenced``: values not stored because of a write or an
        invalidation during the
    load. ``timeouts``: waits that ended before the load. ``unlocked``: loads beside another one, or without a store.
    ``down``: requests that the store failed. ``nested``: loads inside other loads that couldn't wait.
    """
    with _mutex.rlock:
        return dict(_counts)


def finished(sender: type, alias: str, key: str, name: str, seconds: float, outcome: str) -> None:
    """Send ``load_finished``, and log receivers that fail."""
    if load_finished.receivers:
        arguments = {"cache": alias, "key": key, "name": name, "seconds": seconds, "outcome": outcome}
        for receiver, result in load_finished.send_robust(sender=sender, **arguments):
            if isinstance(result, Exception):
                log.error("Receiver %r of load_finished failed", receiver, exc_info=result)

"""Counters and the signal ``load_finished``. Counters aren't kept by key, which may contain personal data."""

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

_counts: Counter[tuple[str, str]] = Counter()
_mutex = ForkSafeLock()


def count(alias: str, counter: str) -> None:
    """Add one to a counter of a cache."""
    with _mutex.rlock:  # += isn't atomic
        _counts[alias, counter] += 1


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
    with _mutex.rlock:
        return dict(_counts)


def send_load_finished(sender: type, alias: str, key: str, name: str, seconds: float, outcome: str) -> None:
    """Send ``load_finished``, and log receivers that fail."""
    if load_finished.receivers:
        arguments = {"cache": alias, "key": key, "name": name, "seconds": seconds, "outcome": outcome}
        for receiver, result in load_finished.send_robust(sender=sender, **arguments):
            if isinstance(result, Exception):
                log.error("Receiver %r of load_finished failed", receiver, exc_info=result)

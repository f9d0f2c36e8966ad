"""What happened to loads: counters, a signal, log lines. Never by key: a key may hold personal data."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Final

from django.dispatch import Signal

from ..core import forks

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
"""A loader has run. ``sender``: the class of the cache; ``cache``: its alias; ``key``: as the cache stores it; ``name``;
``seconds``; ``outcome``: ``"stored"``, ``"unstored"``, ``"fenced"``: something was written or invalidated meanwhile, or
``"failed"``. Sent robustly, where the loader ran."""

_counts: Counter[tuple[str, str]] = Counter()


_mutex = threading.RLock()


def count(alias: str, what: str) -> None:
    with _mutex:  # to add one is to read and to write
        _counts[alias, what] += 1


def counters() -> dict[tuple[str, str], int]:
    """How often what happened in this process, by (alias of the cache, what).

    ``hits``, ``stale``: values served, fresh or not. ``loads``, ``failures``: loaders that brought a value or raised.
    ``waits``: callers who waited for another one. ``fenced``: values that weren't stored, since something was written or
    invalidated meanwhile. ``timeouts``: waits that were too short. ``unlocked``: loads beside another one, or without a
    store. ``down``: questions that the store didn't answer. ``nested``: loads inside of loads that couldn't wait.
    """
    with _mutex:
        return dict(_counts)


def _after_fork_in_child() -> None:
    global _mutex  # noqa: PLW0603 - another thread of the parent may have had it
    _mutex = threading.RLock()


forks.in_child(_after_fork_in_child)


def finished(sender: type, alias: str, key: str, name: str, seconds: float, outcome: str) -> None:
    """A loader has run."""
    if load_finished.receivers:
        about = {"cache": alias, "key": key, "name": name, "seconds": seconds, "outcome": outcome}
        for receiver, result in load_finished.send_robust(sender=sender, **about):
            if isinstance(result, Exception):
                log.error("Receiver %r of load_finished failed", receiver, exc_info=result)

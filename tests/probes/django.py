"""What tests of the Django layer look at, or reset, behind its public names."""

from __future__ import annotations

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.core.owners import registry
from django_redis_locks.decorators import transactions


def keys_held_in_memory() -> list[str]:
    """The keys of all memory stores of this process whose lease hasn't ended."""
    stores = list(memory._stores.values())
    return sorted(str(key) for store in stores for key, record in list(store.records.items()) if record.left())


def holds_of_this_process() -> int:
    """How many locks this process believes to hold, for whichever thread or task."""
    return len(registry)


def repeat_warnings() -> None:
    """Warnings about transactions that are logged once per name are logged once more."""
    transactions._warn_late.cache_clear()
    transactions._warn_by_hand.cache_clear()

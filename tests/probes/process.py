"""What this process keeps of locks between two tests."""

from __future__ import annotations

from django_redis_locks import renewal
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.core.hold import State
from django_redis_locks.core.owners import registry


def forget_locks() -> None:
    """Nothing is held any more: no grant is released, renewed or reported as lost later, and memory stores are empty."""
    for grant in list(registry._grants.values()):
        registry.forget(grant)
        grant.hold.state = State.GONE
    for store in memory._stores.values():
        store.records.clear()
        store.listings.clear()
    for janitor in renewal.janitors():
        janitor.wake()  # it may have looked at a clock that was the test's, and sleep accordingly

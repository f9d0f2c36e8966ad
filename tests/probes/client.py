"""What a client of one alias keeps in this process: its queues of waiters, its holds, its mutexes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django_redis_locks.backends.redis.refusals import HINTS
from django_redis_locks.core import owners
from django_redis_locks.core.hold import validity

if TYPE_CHECKING:
    from django_redis_locks import Grant, Lock
    from django_redis_locks.client import Locks


def queue_count(client: Locks) -> int:
    """How many queues have callers that wait."""
    return len(client.engine._queues)


def waiting_callers(client: Locks, lock: Lock) -> int:
    """How many callers of this process wait for the lock, in threads and in all event loops."""
    queues = client.engine._queues._queues.get(lock.place, {})
    return sum(len(queue.seats) for queue in list(queues.values()))


def is_registered(lock: Lock) -> bool:
    """Whether this process knows of a grant of the lock."""
    return owners.registry.knows(lock.place)


def token_prefix() -> str:
    """What all tokens of this process begin with."""
    return owners.mint_token()[:16]


def lease_began(grant: Grant, lease: int) -> float:
    """When a lease of this many milliseconds began, by the deadline of the grant."""
    return grant.hold.deadline - validity(lease)


def connections_of_this_loop(client: Locks) -> int:
    """How many connections to Redis the running event loop has."""
    return len(client.engine.backend._awire._homes[asyncio.get_running_loop()]._streams)


def rights_named_when_refused() -> list[str]:
    """The rights that the message to a user without them lists."""
    return [right for right in re.findall(r"\+(\w+)", HINTS["NOPERM"]) if right != "select"]


@contextmanager
def mutexes_held(client: Locks) -> Iterator[None]:
    """As if another thread were inside the engine, at a fork for example."""
    with client.engine._janitor._mutex, client.engine._queues._mutex:
        yield

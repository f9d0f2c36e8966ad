"""What the store of an alias says of itself, and how far its fences have got. Beside ``inspection``, which tells of
locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .backends.memory import MemoryBackend
from .core.runner import arun, run
from .handler import DEFAULT, locks
from .primitives.shared.fence_counter import raising

if TYPE_CHECKING:
    from .core.server_info import Facts, FenceCounter

PATIENCE: Final = 2.0
"""Seconds that a store may take to tell of itself."""


def facts(using: str = DEFAULT, *, timeout: float = PATIENCE) -> Facts:
    """What the store of an alias says of itself.

    Args:
        using: the alias.
        timeout: seconds that this may take in all.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockBackendError: the store can't be reached, or doesn't let us in.
    """
    client = locks[using]
    client.engine.may_block()
    return client.engine.backend.facts(client.settings.key_prefix, timeout)


async def afacts(using: str = DEFAULT, *, timeout: float = PATIENCE) -> Facts:
    """As ``facts``."""
    return await asyncio.to_thread(facts, using, timeout=timeout)


def remembers_only_itself(using: str = DEFAULT) -> bool:
    """Whether an alias keeps its locks in the memory of each process, so that nobody sees those of another one."""
    return isinstance(locks[using].engine.backend, MemoryBackend)


def fences(using: str = DEFAULT) -> list[FenceCounter]:
    """The fence counters of an alias, one for each bucket.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    return raise_fences(0, using)


async def afences(using: str = DEFAULT) -> list[FenceCounter]:
    """As ``fences``."""
    return await araise_fences(0, using)


def raise_fences(at_least: int, using: str = DEFAULT) -> list[FenceCounter]:
    """Move the fence counters of an alias forward, never back, and return what they are then.

    Raises:
        ValueError: that is no fence.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(raising(client.counters, at_least), client.engine)


async def araise_fences(at_least: int, using: str = DEFAULT) -> list[FenceCounter]:
    """As ``raise_fences``."""
    client = locks[using]
    return await arun(raising(client.counters, at_least), client.engine)

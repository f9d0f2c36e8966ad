"""Reads the properties of the server of an alias, and reads or raises its fence counters. ``inspection`` reads the
locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .backends.memory import MemoryBackend
from .core.runner import arun, run
from .handler import DEFAULT, locks
from .primitives.shared.fence_counter import raising

if TYPE_CHECKING:
    from .core.server_info import Facts, FenceCounter, Topology

DEFAULT_TIMEOUT: Final = 2.0
"""The default ``timeout`` of ``facts``, in seconds."""


def facts(using: str = DEFAULT, *, timeout: float = DEFAULT_TIMEOUT) -> Facts:
    """Read version, role, settings and limits of the server of an alias.

    Args:
        using: the alias.
        timeout: seconds for all requests together.

    Returns:
        The properties of the server. Those that it doesn't report are None or "".

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockBackendError: the store can't be reached, or refuses the login.
    """
    client = locks[using]
    client.engine.may_block()
    return client.engine.backend.facts(client.settings.key_prefix, timeout)


async def afacts(using: str = DEFAULT, *, timeout: float = DEFAULT_TIMEOUT) -> Facts:
    """Read version, role, settings and limits of the server of an alias.

    Args:
        using: the alias.
        timeout: seconds for all requests together.

    Returns:
        The properties of the server. Those that it doesn't report are None or "".

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockBackendError: the store can't be reached, or refuses the login.
    """
    return await asyncio.to_thread(facts, using, timeout=timeout)


def topology(using: str = DEFAULT, key: str = "") -> Topology:
    """Return the servers of an alias, as this process knows them from its requests so far. Does no I/O.

    Args:
        using: the alias.
        key: the filled key of a lock; of a Cluster, ``asked`` has the server of this lock then.

    Returns:
        The kind of the store, and the addresses of its servers.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockKeyError: the key is invalid.
    """
    client = locks[using]
    return client.engine.backend.topology(client.listed(key).keys.lock if key else "")


def is_per_process(using: str = DEFAULT) -> bool:
    """Return whether an alias keeps its locks in memory, so that each process has its own."""
    return isinstance(locks[using].engine.backend, MemoryBackend)


def fences(using: str = DEFAULT) -> list[FenceCounter]:
    """Read the fence counters of an alias, one for each bucket.

    Args:
        using: the alias.

    Returns:
        The counters, one for each bucket.

    Raises:
        InvalidLockBackend: there is no such alias, its settings are wrong, or its store has no counters.
        LockBackendError: the store can't be reached, or refuses.
    """
    return raise_fences(0, using)


async def afences(using: str = DEFAULT) -> list[FenceCounter]:
    """Read the fence counters of an alias, one for each bucket.

    Args:
        using: the alias.

    Returns:
        The counters, one for each bucket.

    Raises:
        InvalidLockBackend: there is no such alias, its settings are wrong, or its store has no counters.
        LockBackendError: the store can't be reached, or refuses.
    """
    return await araise_fences(0, using)


def raise_fences(at_least: int, using: str = DEFAULT) -> list[FenceCounter]:
    """Raise the fence counters of an alias, for instance after the store was restored. They are never lowered.

    Args:
        at_least: the new value of counters that are smaller.
        using: the alias.

    Returns:
        The counters afterwards, one for each bucket.

    Raises:
        InvalidLockBackend: there is no such alias, its settings are wrong, or its store has no counters.
        ValueError: ``at_least`` can't be a fence.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    client.engine.require("counters", using)
    return run(raising(client.fence_counters, at_least), client.engine)


async def araise_fences(at_least: int, using: str = DEFAULT) -> list[FenceCounter]:
    """Raise the fence counters of an alias, for instance after the store was restored. They are never lowered.

    Args:
        at_least: the new value of counters that are smaller.
        using: the alias.

    Returns:
        The counters afterwards, one for each bucket.

    Raises:
        InvalidLockBackend: there is no such alias, its settings are wrong, or its store has no counters.
        ValueError: ``at_least`` can't be a fence.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    client.engine.require("counters", using)
    return await arun(raising(client.fence_counters, at_least), client.engine)

"""Lists, inspects, counts and force-releases the locks of an alias. The admin and the management command use only this
module."""

from __future__ import annotations

from .core.runner import arun, run
from .handler import DEFAULT, locks
from .lock_listing import (
    COLUMNS,
    LONGEST_PAGE,
    MOST,
    STATES,
    Choice,
    Counts,
    Page,
    counting,
    finding,
    listing,
)
from .primitives.shared.lock_info import LockInfo, State

__all__ = [
    "COLUMNS",
    "LONGEST_PAGE",
    "MOST",
    "STATES",
    "Choice",
    "Counts",
    "LockInfo",
    "Page",
    "State",
    "acounts",
    "afind",
    "aforce_release",
    "aheld",
    "counts",
    "find",
    "force_release",
    "held",
]


def held(
    using: str = DEFAULT,
    *,
    match: str = "",
    state: Choice = "held",
    order: str = "lease_left",
    limit: int = 50,
    cursor: int = 0,
) -> Page:
    """List the locks of an alias.

    Args:
        using: the alias.
        match: a part of the key; or a pattern with ``*`` and ``?`` for the whole key; or the digest that log records
            have instead of the key. Case is ignored.
        state: ``"held"``, ``"overdue"``, ``"expired"``, ``"queued"`` or ``"all"``.
        order: ``"lease_left"``, ``"key"``, ``"name"``, ``"held_for"``, ``"fence"``, ``"waiting"`` or ``"holder"``; a
            minus in front sorts in descending order.
        limit: the largest number of locks on the page, 1 to 1 000.
        cursor: where the page begins: 0, or ``next`` of the previous page.

    Returns:
        The page. Iterate with ``cursor=page.next`` until that is None.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        ValueError: an argument is out of its range.
        LockBackendError: the store can't be reached, or refuses.

    Example::

        for info in inspection.held(match="order:*", order="-held_for").rows:
            print(info.key, info.holder)
    """
    client = locks[using]
    return run(listing(client, match, state, order, limit, cursor), client.engine)


async def aheld(
    using: str = DEFAULT,
    *,
    match: str = "",
    state: Choice = "held",
    order: str = "lease_left",
    limit: int = 50,
    cursor: int = 0,
) -> Page:
    """List the locks of an alias.

    Args:
        using: the alias.
        match: a part of the key; or a pattern with ``*`` and ``?`` for the whole key; or the digest that log records
            have instead of the key. Case is ignored.
        state: ``"held"``, ``"overdue"``, ``"expired"``, ``"queued"`` or ``"all"``.
        order: ``"lease_left"``, ``"key"``, ``"name"``, ``"held_for"``, ``"fence"``, ``"waiting"`` or ``"holder"``; a
            minus in front sorts in descending order.
        limit: the largest number of locks on the page, 1 to 1 000.
        cursor: where the page begins: 0, or ``next`` of the previous page.

    Returns:
        The page. Iterate with ``cursor=page.next`` until that is None.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        ValueError: an argument is out of its range.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return await arun(listing(client, match, state, order, limit, cursor), client.engine)


def find(key: str, using: str = DEFAULT) -> LockInfo:
    """Read one lock, held or free.

    Args:
        key: the filled key.
        using: the alias.

    Returns:
        The lock; its ``state`` is ``"free"`` if there is none.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockKeyError: the key is empty.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(finding(client, key), client.engine)


async def afind(key: str, using: str = DEFAULT) -> LockInfo:
    """Read one lock, held or free.

    Args:
        key: the filled key.
        using: the alias.

    Returns:
        The lock; its ``state`` is ``"free"`` if there is none.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockKeyError: the key is empty.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return await arun(finding(client, key), client.engine)


def counts(using: str = DEFAULT) -> Counts:
    """Count the locks of an alias.

    Args:
        using: the alias.

    Returns:
        The numbers; all are 0 if ``INDEX`` is off.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return run(counting(client), client.engine)


async def acounts(using: str = DEFAULT) -> Counts:
    """Count the locks of an alias.

    Args:
        using: the alias.

    Returns:
        The numbers; all are 0 if ``INDEX`` is off.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockBackendError: the store can't be reached, or refuses.
    """
    client = locks[using]
    return await arun(counting(client), client.engine)


def force_release(
    key: str, *, using: str = DEFAULT, fence: int | None = None, reason: str = "", actor: str = ""
) -> bool:
    """Release a lock by force. Its holder continues to work until its next renewal, or a message, reports the loss.

    Args:
        key: the filled key.
        using: the alias.
        fence: release the lock only if its current hold has this fence; of a semaphore, only the hold with this fence. By
            default all holds.
        reason: why, for the log and the signal.
        actor: the user or program that releases it, for the log and the signal.

    Returns:
        Whether a lock was released.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockKeyError: the key is empty.
        LockBackendError: the store can't be reached, or refuses.
    """
    found = find(key, using)
    return locks[using].listed(key, found.kind, found.limit).force_release(reason, fence, actor)


async def aforce_release(
    key: str, *, using: str = DEFAULT, fence: int | None = None, reason: str = "", actor: str = ""
) -> bool:
    """Release a lock by force. Its holder continues to work until its next renewal, or a message, reports the loss.

    Args:
        key: the filled key.
        using: the alias.
        fence: release the lock only if its current hold has this fence; of a semaphore, only the hold with this fence. By
            default all holds.
        reason: why, for the log and the signal.
        actor: the user or program that releases it, for the log and the signal.

    Returns:
        Whether a lock was released.

    Raises:
        InvalidLockBackend: there is no such alias, or its settings are wrong.
        LockKeyError: the key is empty.
        LockBackendError: the store can't be reached, or refuses.
    """
    found = await afind(key, using)
    return await locks[using].listed(key, found.kind, found.limit).aforce_release(reason, fence, actor)

"""Releases the locks and jobs of crashed or killed processes of this machine, before their leases end.

This is optional, because the end of the lease frees such a lock anyway. It helps with long leases, and replaces scripts
that delete all locks, including those of running processes.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Final

from . import inspection
from .core.errors import LockBackendError
from .handler import DEFAULT

REASON: Final = "its process is gone"


def find_dead(using: str = DEFAULT) -> list[inspection.LockInfo]:
    """Find the locks and jobs of processes of this machine that have ended.

    A process is identified by its host name and process id. Don't use this where containers share a host name but not
    their
    processes: running processes of other containers look dead. ``METADATA`` must store both.

    Args:
        using: the alias.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    found: list[inspection.LockInfo] = []
    cursor: int | None = 0
    while cursor is not None:
        page = inspection.held(using, limit=inspection.LONGEST_PAGE, cursor=cursor)
        found += _dead_of(page)
        cursor = page.next
    return found


async def afind_dead(using: str = DEFAULT) -> list[inspection.LockInfo]:
    """Find the locks and jobs of processes of this machine that have ended.

    A process is identified by its host name and process id. Don't use this where containers share a host name but not
    their
    processes: running processes of other containers look dead. ``METADATA`` must store both.

    Args:
        using: the alias.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    found: list[inspection.LockInfo] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await inspection.aheld(using, limit=inspection.LONGEST_PAGE, cursor=cursor)
        found += _dead_of(page)
        cursor = page.next
    return found


def _dead_of(page: inspection.Page) -> list[inspection.LockInfo]:
    if page.unreachable:
        raise LockBackendError(page.unreachable[0], transient=True, unreachable=True)
    host = socket.gethostname()
    return [
        replace(info, holder=holder, holders=(holder,))  # others live
        for info in page.rows
        for holder in (info.holders or filter(None, (info.holder,)))
        if holder.host == host and _has_ended(holder.pid)
    ]


def release_dead(using: str = DEFAULT, *, actor: str = "") -> list[inspection.LockInfo]:
    """Release the locks and jobs of processes of this machine that have ended. Their fences are compared: a lock that
    another process has acquired since isn't released.

    A process is identified by host name and process id, which ``METADATA`` must store. Don't use this where containers
    share a host name but not their processes.

    Args:
        using: the alias.
        actor: the user or program that releases them, for the log and the signal.

    Returns:
        The locks that were released.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    return release_found(find_dead(using), actor)


async def arelease_dead(using: str = DEFAULT, *, actor: str = "") -> list[inspection.LockInfo]:
    """Release the locks and jobs of processes of this machine that have ended. Their fences are compared: a lock that
    another process has acquired since isn't released.

    A process is identified by host name and process id, which ``METADATA`` must store. Don't use this where containers
    share a host name but not their processes.

    Args:
        using: the alias.
        actor: the user or program that releases them, for the log and the signal.

    Returns:
        The locks that were released.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    release = inspection.aforce_release
    return [
        info
        for info in await afind_dead(using)
        if await release(info.key, using=info.alias, fence=info.fence, reason=REASON, actor=actor)
    ]


def release_found(found: list[inspection.LockInfo], actor: str) -> list[inspection.LockInfo]:
    """Release these locks if their fences haven't changed. Return those that were released."""
    return [
        info
        for info in found
        if inspection.force_release(info.key, using=info.alias, fence=info.fence, reason=REASON, actor=actor)
    ]


def _has_ended(pid: int | None) -> bool:
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process, or an invalid id
        return False
    return False

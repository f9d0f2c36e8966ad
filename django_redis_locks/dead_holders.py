"""Locks and jobs whose process is gone, on this machine: freed before their lease ends.

Nothing here is needed: what a dead process held is free when its lease ends. It is for long leases, and instead of commands
that clear everything, which free what the living hold.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from . import inspection
from .handler import DEFAULT

REASON: Final = "its process is gone"


def dead(using: str = DEFAULT) -> list[inspection.LockInfo]:
    """What processes of this machine hold that don't run any more.

    Processes are told by host name and number. Where containers share a host name but not their processes, one that lives
    elsewhere looks dead: don't use it there. What ``METADATA`` doesn't store can't be found.

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


async def adead(using: str = DEFAULT) -> list[inspection.LockInfo]:
    """As ``dead``."""
    found: list[inspection.LockInfo] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await inspection.aheld(using, limit=inspection.LONGEST_PAGE, cursor=cursor)
        found += _dead_of(page)
        cursor = page.next
    return found


def _dead_of(page: inspection.Page) -> list[inspection.LockInfo]:
    host = socket.gethostname()
    return [info for info in page.rows if info.holder and info.holder.host == host and _gone(info.holder.pid)]


def release_dead(using: str = DEFAULT, *, actor: str = "") -> list[inspection.LockInfo]:
    """Free all that ``dead`` finds, and nothing that was acquired since.

    Args:
        actor: who does it, for the log and the signal.

    Returns:
        What was freed.

    Raises:
        LockBackendError: the store can't be reached, or refuses.
    """
    return free(dead(using), actor)


async def arelease_dead(using: str = DEFAULT, *, actor: str = "") -> list[inspection.LockInfo]:
    """As ``release_dead``."""
    release = inspection.aforce_release
    return [
        info
        for info in await adead(using)
        if await release(info.key, using=info.alias, fence=info.fence, reason=REASON, actor=actor)
    ]


def free(found: list[inspection.LockInfo], actor: str) -> list[inspection.LockInfo]:
    """Free what was found, and nothing that was acquired since."""
    return [
        info
        for info in found
        if inspection.force_release(info.key, using=info.alias, fence=info.fence, reason=REASON, actor=actor)
    ]


def _gone(pid: int | None) -> bool:
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is somebody else's, or there can be none
        return False
    return False

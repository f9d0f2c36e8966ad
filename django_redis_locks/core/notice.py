"""Telling a holder that his lock is lost, where he wants to hear it."""

from __future__ import annotations

import asyncio
import logging

from .hold import Hold, State
from .visible import visible

_log = logging.getLogger("django_redis_locks.lost")


def notify(hold: Hold) -> None:
    """Do what ``on_lost`` says: cancel the task that acquired the lock, or call back, in its loop if it has one."""
    react = hold.on_lost
    loop = hold.home if isinstance(hold.home, asyncio.AbstractEventLoop) else None

    def call() -> None:
        try:
            if react == "cancel":
                task = hold.owner()
                if isinstance(task, asyncio.Task) and hold.state is State.HELD:
                    task.cancel(f"lock {hold.name} was lost")
            elif callable(react):
                grant = hold.grant()
                if grant is not None:
                    react(grant)
        except BaseException:  # noqa: BLE001 - the user's code, in our thread: not even sys.exit() may end that
            _log.exception("on_lost of lock %s failed", visible(hold.name))

    if loop is None:
        call()
        return
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # the loop is closed, and its tasks are gone

"""Runs the ``on_lost`` option when a lock is lost: cancels the task, or calls the callback."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING

from ..core.hold import Hold, State
from ..core.multi_grant import MemberGrant
from ..core.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.grant import OnLost

_log = logging.getLogger("django_redis_locks.lost")


def call_on_lost(hold: Hold, submit: Callable[[Callable[[], object]], object]) -> None:
    """Run the ``on_lost`` of a hold, once: cancel the task that acquired the lock, or call the callback.

    Args:
        hold: the lost hold.
        post: queues the callback of a thread; the callback of a task is called in its event loop. A callback's
            ``at_once`` attribute, which must not block, is called immediately.
    """
    with hold.mutex.rlock:
        on_lost, hold.on_lost = hold.on_lost, None
    grant = hold.grant() if callable(on_lost) else None  # referenced until the call is made
    loop = hold.loop if isinstance(hold.loop, asyncio.AbstractEventLoop) else None

    def call() -> None:
        try:
            _call(on_lost, hold, grant)
        except BaseException:  # noqa: BLE001 - a SystemExit of the user's code must not end the thread
            _log.exception("on_lost of lock %s failed", escape_unprintable(hold.name))

    at_once = getattr(on_lost, "at_once", None)
    if at_once is not None:
        at_once()
    if loop is None:
        submit(call)
        return
    try:
        loop.call_soon_threadsafe(call, context=Context())
    except RuntimeError:
        pass  # the loop is closed, and its tasks have ended


def _call(on_lost: object, hold: Hold, grant: object) -> None:
    if on_lost == "cancel":
        task = hold.owner()
        if isinstance(task, asyncio.Task) and hold.state is State.HELD:
            task.cancel(f"lock {hold.name} was lost")
    elif callable(on_lost) and grant is not None:
        on_lost(grant)


class MemberLoss:
    """The ``on_lost`` of one lock of a multi lock.

    Args:
        own: that of the lock, which gets the grant of the lock.
        of_all: that of the multi lock, which gets the grant of all locks, once.
    """

    def __init__(self, own: OnLost, of_all: OnLost) -> None:
        self._own = own
        self._of_all = of_all

    def __call__(self, grant: MemberGrant) -> None:
        """Run both for the lost grant of one lock."""
        try:
            _call(self._own, grant.hold, grant)
        finally:
            siblings = grant.siblings
            if siblings is not None and siblings.first_loss():
                _call(self._of_all, grant.hold, grant.whole)

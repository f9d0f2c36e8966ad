"""Celery sees the death of a child late: its pool looks once when the child's end of a pipe closes, which the kernel does a
moment before the child can be waited for, and then every five seconds. So long its jobs would stay taken."""

from __future__ import annotations

from typing import Any, Final

from celery.signals import worker_ready

EVERY: Final = 0.2
"""Seconds between two looks, of some microseconds each."""


def _watch(sender: Any, **_: Any) -> None:
    hub, look = getattr(sender, "hub", None), getattr(sender.pool, "maintain_pool", None)
    if hub is not None and look is not None:
        hub.call_repeatedly(EVERY, look)


worker_ready.connect(_watch, weak=False, dispatch_uid="celery_locks")

"""Owners of grants: the caller's thread or task.

An owner is a thread or a task *and* a context. The context alone leaks: tasks and threads inherit a copy of it. The
thread alone leaks too: several requests share an executor's thread. A caller that matches only one of the two doesn't
own the grant; if it would wait for itself, the acquire raises.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from asyncio import events
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .hold import Hold

Owner: TypeAlias = "threading.Thread | asyncio.Task[object] | ForeignThread"

Loop: TypeAlias = asyncio.AbstractEventLoop

running_loop = events._get_running_loop
"""Return the event loop that runs in this thread, or None. The C function, which doesn't raise."""


class ForeignThread:
    """A thread that ``threading`` didn't start, for example one of C code. Before Python 3.13 its dummy object in
    ``threading`` stays alive when the thread ends, and is reused for the next thread with the same system id."""

    __slots__ = ("__weakref__", "life", "name")

    def __init__(self, name: str, life: object) -> None:
        self.name = name
        self.life = weakref.ref(life)


class _ThreadLiveness:
    """An object that only its thread references."""

    __slots__ = ("__weakref__",)


class _ThreadLocal(threading.local):
    """The owner of the current thread, determined at its first access."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        self.owner: threading.Thread | ForeignThread = thread
        untyped: object = thread  # under eventlet it isn't a Thread
        if type(thread) is threading._DummyThread or not isinstance(untyped, threading.Thread):
            self.life = _ThreadLiveness()
            self.owner = ForeignThread(thread.name, self.life)


here = _ThreadLocal()
"""``here.owner`` is the current thread."""


def current_owner() -> Owner:
    """Return the running task, or the thread outside of a task."""
    return owner_in(running_loop())


def owner_in(loop: Loop | None) -> Owner:
    """Return the running task of the loop that runs in this thread, or the thread outside of a task."""
    task = None if loop is None else asyncio.current_task(loop)
    return here.owner if task is None else task


def name_of(owner: Owner) -> str:
    """Return the name of a thread or task."""
    return owner.get_name() if isinstance(owner, asyncio.Task) else owner.name


def is_alive(hold: Hold) -> bool:
    """Return whether the thread or task that acquired a hold still runs.

    ``Thread.is_alive()`` isn't used: up to CPython 3.12 a signal handler that raises inside of it marks a running
    thread as dead permanently."""
    owner = hold.owner()
    if owner is None:
        return False
    if isinstance(owner, threading.Thread):
        return owner in threading.enumerate()
    if isinstance(owner, ForeignThread):
        return owner.life() is not None
    return not owner.done()  # type: ignore[attr-defined]
